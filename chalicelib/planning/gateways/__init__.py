"""Decisions about gateways, their machines and their certificates."""
