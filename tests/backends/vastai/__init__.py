"""Vast.ai."""
