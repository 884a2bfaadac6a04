"""Nebius."""
