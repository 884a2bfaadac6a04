"""Streams over WebSockets to jobs' ports, logs and sessions, all on one thread."""
