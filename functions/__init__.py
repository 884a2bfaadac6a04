"""Lambda entry points: plain functions, no Chalice, one event shape each. The work is done elsewhere.

AWS passes a handler an event and a context; the root is then the process's own. Tests pass another.
"""
