"""Runs as users see them: plans, submission, code, logs, metrics, streams, and rules that act on events."""
