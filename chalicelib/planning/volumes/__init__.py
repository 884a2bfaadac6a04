"""Decisions about volumes: creation, registration, attachment, detachment and deletion; and where a job can mount them."""
