"""The world that tests use, from a single noun to a whole control plane. One kit for all of them.

`nouns.py`      nouns, specs and snapshots, short to write
`time.py`       a clock set by hand, and one with scheduled events
`ports.py`      small working versions of the ports
`plane.py`      a plane by itself, over SQLite and files
`engine.py`     a plane with passes over it, in memory
`decisions.py`  decisions alone: no store, no engine, whatever an agent or a cloud may do
`hosts.py`      machines with the agent's own session, and the network in between; `shell.py` what their tasks do
`site.py`       a whole control plane with its cloud and hosts on virtual time: `embedded.py`, `aws.py`
`cli.py`        the command line in this process; `wires.py` its connection without a socket
"""
