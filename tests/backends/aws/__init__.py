"""An AWS for tests: moto, and what moto lacks or gets wrong, which is most of what goes wrong with the real one.

`wire` reads and writes AWS's own protocols, `account` is one account with its clock, its script of faults and the order
of answering; the other modules are the services that are answered here rather than by moto, or corrected after it.
What moto differs in is said where it is put right.
"""
