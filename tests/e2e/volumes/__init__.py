"""Volumes on machines: the simulated cloud, whose machines are hosts of `tests.e2e.hosts` and whose disks are real.

    cloud     the product's server, whose cloud asks the provider for machines
    provider  gives it hosts, which boot with the machine's own user data
    lab       both, and what a person does there with volumes
    kills     one volume's way through two machines, and who is killed on it
    cycles    volumes that are made, used and deleted many times

`python -m tests.e2e.volumes` plays the last two at length.

A volume is a sparse file that is a loop device of this kernel while it is attached. All hosts share the kernel, so each
sees which disks there are; only the one that is told mounts it, and the kernel knows of every mount in any of them.
"""
