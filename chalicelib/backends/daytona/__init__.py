"""Daytona."""
