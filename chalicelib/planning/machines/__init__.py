"""Decisions about instances and fleets, about hosts that people own, and about what a sweep of an account finds."""
