"""Whole histories on one thread, in virtual time: the real engine, planning, use cases and agent session, under faults.

Only the edges are simulated: time, the network between agents and plane, the store and the cloud as one process sees
them, what tasks do, and what users request. Decisions, transitions and retries are the product's, so a history that
goes wrong shows a bug in the product.

`world.py` time, faults, crashes · `edges.py` store and cloud · `plane.py` the processes that run the product ·
`hosts.py` agents and their network · `watch.py` every commit as it happens · `stories/` one module per feature, with
what happens and what must hold · `history.py` all stories at once · `planted.py` bugs to be found ·
`workers.py` many histories on all processors.
"""
