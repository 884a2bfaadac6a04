"""Crusoe Cloud."""
