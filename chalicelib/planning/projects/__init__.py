"""Decisions about projects: deletion, what may be erased, and the subscriptions to their events."""
