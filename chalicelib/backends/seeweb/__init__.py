"""Seeweb."""
