"""Crusoe Cloud: its fake, and what the backend does on it."""
