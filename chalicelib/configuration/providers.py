"""The providers' part of the language: names from the table of backends, and models that are loaded on first use."""

from __future__ import annotations

from chalicelib.backends.registry import Models
from chalicelib.domain.reading_context import Reading

PROVIDERS = Models()
FROM_FILE = Reading(PROVIDERS, file=True)
FROM_CLIENT = Reading(PROVIDERS)
