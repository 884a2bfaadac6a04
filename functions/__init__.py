"""Lambda entry points: plain functions without Chalice, with one event shape each. The work is done elsewhere.

AWS calls a handler with an event and a context, and the handler uses the process's composition root. Tests pass their
own.
"""
