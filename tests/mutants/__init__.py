"""Small changes to the product, one at a time, each of which some test must notice.

A test suite is worth what it notices. `changes.py` lists what can be changed in a file (an operator, a constant, a
return, a call), `touching.py` knows which tests reach a line, `trial.py` plays one change in a copy of the tree against
those of them that are about its file, and `__main__.py` draws a sample, counts, and prints what survives: a reviewer
judges whether it makes a difference at all.

Why our own: of the mutation tools on PyPI one rewrites function bodies only, so a module's tables and constants stay as
they are, and the other runs one command for every change; all our tests take minutes, those about one file seconds.
"""
