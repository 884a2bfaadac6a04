"""Decisions about the queue: which jobs are placed where, which machines are bought for them, which wait, and why."""
