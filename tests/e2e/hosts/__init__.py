"""Real hosts for tests: a head node and workers behind it, booted in seconds on the machine that runs the tests.

    claim     what a site takes from this machine, and how all of it is given back
    network   namespaces and wires
    rootfs    a disk: this machine's programs, and nothing else of it
    spec      what a host is like
    stubs     what no test host can have: GPUs, another architecture
    host      one host: power, wires, commands
    site      all of them
    snapshot  what is on a host, and what has changed

What hosts can't have, because they share one kernel: their own clock (`stubs.clock` deceives programs), their own
processor and memory figures in /proc, drivers, disk quotas in the engine, another kernel's messages. They have no
systemd of a user who is logged in, either.
"""
