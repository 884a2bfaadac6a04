"""The carrier: a Python for the agent in containers whose image has none.

`packages.lock`  the Debian packages that it is made of, by digest, for each architecture
`packages`       that list
`debian`         what a package has in it
`bundle`         what is taken from where: pure, the same packages give the same bytes
`download`       the packages, from Debian's mirror or its archive of old ones
`make`           all of that; `python -m chalicelib.carrier x86 carrier.tar.gz` writes one to a file

A carrier is a folder that works wherever it is copied to: the program, its libraries and their own dynamic loader,
which starts it without anything of the image (`agent/kernel/interpreter.py` has the command). The programs in it are
under licences of their own, whose texts it has in `licences`.
"""
