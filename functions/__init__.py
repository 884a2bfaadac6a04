"""Lambda entry points: plain functions, no Chalice, one event shape each. What they do is elsewhere."""
