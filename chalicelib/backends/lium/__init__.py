"""Lium."""
