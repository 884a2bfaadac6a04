"""The carrier: a Python for the agent, and an SSH server for its sessions, in containers whose image has none.

`packages.lock`  the digests of the Debian packages that carriers are made of, for each architecture
`packages`       reads that list
`debian`         reads a package
`bundle`         chooses and packs a carrier's files; pure: the same packages give the same bytes
`download`       fetches the packages from Debian's mirror, or from its archive of old ones
`make`           does all of this; `python -m chalicelib.carrier x86 carrier.tar.gz` writes one to a file

A carrier is a folder that works at any path: Python, its libraries, and a dynamic loader, with which Python starts
without using anything of the image (`agent/kernel/interpreter.py` builds the command). The SSH server is started in the
same way (`agent/sessions/openssh.py`), with nss_wrapper and uid_wrapper for users and rights that a container may lack.
The folder `licences` has the licences of all these programs, and the texts that they refer to.
"""
