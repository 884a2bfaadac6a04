"""The simulated cloud: what it sells, how it misbehaves, where its state is, what starts a machine.

It has no row in the registry and no settings in `server/config.yml`: a composition root adds it on request.
"""

WIRE_NAME = "dstack"  # borrowed: clients refuse types they don't know, and no cloud of ours has this one
