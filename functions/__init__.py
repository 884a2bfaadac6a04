"""Lambda entry points: plain functions, no Chalice, one event shape each. What they do is elsewhere.

AWS gives a handler an event and a context; the root is its process's own then. Tests give another.
"""
