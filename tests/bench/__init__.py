"""Figures, never assertions: medians of several runs, CPU seconds beside wall. `python -m tests.bench` runs them all.

Each module prints one JSON line; the budgets beside the figures are the design's.
"""
