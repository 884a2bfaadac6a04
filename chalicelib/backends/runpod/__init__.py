"""Runpod."""
