"""Whole histories on one thread, in virtual time: the real engine, planning, use cases and agent session, under faults.

Only the edges are made here: time, the network between agents and plane, the store and the cloud as one process sees
them, what tasks do, and what a user asks for. No decision, transition or retry is: those are imported, so a history
that goes wrong shows a bug of the product.

`world.py` time, faults, crashes · `edges.py` store and cloud · `plane.py` the processes that run the product ·
`hosts.py` agents and their network · `watch.py` every commit as it happens · `stories/` one module a feature, with what
happens and what must hold · `history.py` all stories at once · `planted.py` bugs to be found.
"""
