"""Lambda entry points: plain functions, no Chalice, one event shape each. What they do is in the engine and the use cases."""
