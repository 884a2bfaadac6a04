"""Pure nouns. Frozen pydantic models and value types; no clock, no I/O, no randomness."""
