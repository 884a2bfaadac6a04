"""What each node runs: it finds the others by what every job is told, and sums their vectors over TCP.

gloo is the library by which PyTorch does this on CPUs. Its extension module lies beside this file.
"""

from __future__ import annotations

import array
import os
import sys
from datetime import timedelta
from typing import Any

LENGTH = 100_000


def summed(gloo: Any, rank: int, addresses: list[str], master: str, port: int) -> array.array[float]:
    """Of every node the vector `(rank + 1) * (0, 1, … 6, 0, …)`, added up."""
    options = gloo.rendezvous.TCPStoreOptions()
    options.port, options.numWorkers, options.isServer = port, len(addresses), rank == 0
    store = gloo.rendezvous.TCPStore(master, options)
    device = gloo.transport.tcp.CreateDevice(gloo.transport.tcp.attr(addresses[rank]))
    together = gloo.rendezvous.Context(rank, len(addresses))
    together.setTimeout(timedelta(minutes=2))
    together.connectFullMesh(gloo.rendezvous.PrefixStore("all", store), device)
    vector = array.array("d", [(rank + 1) * (at % 7) for at in range(LENGTH)])
    total = array.array("d", bytes(8 * LENGTH))
    where = vector.buffer_info()[0], total.buffer_info()[0], LENGTH
    gloo.allreduce(together, *where, gloo.GlooDataType_t.glooFloat64, gloo.ReduceOp.SUM)
    gloo.barrier(together)  # or node 0, which has the store, could be gone before the others are ready
    return total


def main() -> None:
    import xoscar_pygloo

    env, port = os.environ, int(sys.argv[1])
    rank, addresses = int(env["DSTACK_NODE_RANK"]), env["DSTACK_NODES_IPS"].split()
    found = summed(xoscar_pygloo, rank, addresses, env["DSTACK_MASTER_NODE_IP"], port)
    nodes = int(env["DSTACK_NODES_NUM"])
    wanted = nodes * (nodes + 1) / 2
    right = all(value == wanted * (at % 7) for at, value in enumerate(found))
    print(f"node {rank} of {nodes}: {LENGTH} sums, {'all right' if right else 'WRONG'}", flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
