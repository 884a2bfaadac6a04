"""Whole histories on one thread, in virtual time: the real engine, planning, use cases and agent session, under faults.

Only the edges are made here: time, the network between agents and plane, the cloud, what tasks do, and what a user asks
for. No decision, transition or retry is: those are imported, so a history that goes wrong shows a bug of the product.

`world.py` time, faults, crashes · `plane.py` the processes that run the product · `hosts.py` agents and their network ·
`story.py` what the user does, and how it must end · `checks.py` what must hold always · `planted.py` bugs to be found.
"""
