"""Hosts that people own: logging in over SSH, looking at them, setting them up and clearing them again."""
