"""Decisions about volumes: creation, registration, attachment, detachment, deletion, and where a job can mount them."""
