"""Verda; `datacrunch` is its older name."""
