"""What the language knows of the providers: the table of backends says it, and loads a provider's model when asked."""

from __future__ import annotations

from chalicelib.backends.registry import Models
from chalicelib.domain.reading_context import Reading

PROVIDERS = Models()
FROM_FILE = Reading(PROVIDERS, file=True)
FROM_CLIENT = Reading(PROVIDERS)
