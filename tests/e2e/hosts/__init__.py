"""Real hosts for tests: a head node and workers behind it, booted in seconds on the machine that runs the tests.

    claim     what a site takes from this machine, and how all of it is given back
    network   namespaces and wires
    rootfs    a disk: this machine's programs, and nothing else of it
    spec      what a host is like
    stubs     what no test host can have: GPUs, another architecture
    host      one host: power, wires, commands
    site      all of them
    snapshot  what is on a host, and what has changed

What hosts can't show, because the kernel is one: a clock of their own (`stubs.clock` deceives programs), their own
numbers of processors and bytes in /proc, drivers, quotas of disks in the engine, another kernel's messages.
"""
