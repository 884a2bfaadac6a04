"""Ports, logs and sessions over WebSockets, for all streams of a machine on one thread."""
