"""Providers of accounts."""
