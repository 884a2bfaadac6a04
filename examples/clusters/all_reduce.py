"""How fast the GPUs of all nodes sum a tensor together: the first thing to run on a new cluster.

`all_reduce.py [MIB [LEAST]]` is started by torchrun on every node, and goes up to tensors of MIB. If the bus bandwidth
of the largest isn't at least LEAST GB/s, it fails. That is what `nccl-tests` calls so: comparable with the speed of the
links, however many GPUs there are. On machines without GPUs it uses gloo.
"""

from __future__ import annotations

import os
import sys
import time

SIZES = [1 << shift for shift in range(20, 33, 2)]  # bytes, from 1 MiB to 4 GiB
ROUNDS = 10


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s: of every byte, each rank sends and receives 2 * (ranks - 1) / ranks in any all-reduce."""
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9


def main(most: int, least: float = 0.0) -> int:
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()  # AMD's GPUs, too
    dist.init_process_group("nccl" if gpu else "gloo")  # the same name means RCCL there
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    if rank == 0:
        print(f"{ranks} ranks, {torch.cuda.get_device_name(device) if gpu else 'CPU'}", flush=True)
        print(f"{'MiB':>8} {'ms':>10} {'GB/s':>8} {'bus GB/s':>9}", flush=True)
    wrong, bus = 0, 0.0
    for size in (size for size in SIZES if size <= most):
        tensor = torch.full((size // 4,), float(rank + 1), device=device)
        dist.all_reduce(tensor)  # warms up, and is checked
        wrong += int((tensor != ranks * (ranks + 1) / 2).sum())
        tensor.fill_(1.0)
        _wait(gpu)
        began = time.perf_counter()
        for _ in range(ROUNDS):
            dist.all_reduce(tensor)
        _wait(gpu)
        took = (time.perf_counter() - began) / ROUNDS
        bus = bus_bandwidth(size, took, ranks)
        if rank == 0:
            print(f"{size >> 20:8} {took * 1000:10.3f} {size / took / 1e9:8.2f} {bus:9.2f}", flush=True)
    dist.destroy_process_group()
    if wrong:
        print(f"rank {rank}: {wrong} sums are wrong", flush=True)
    slow = rank == 0 and bus < least
    if slow:
        print(f"{bus:.2f} GB/s are less than {least:g}: see above which network was used", flush=True)
    return 1 if wrong or slow else 0


def _wait(gpu: bool) -> None:
    """For the GPU, which works on while Python goes on, and for the others."""
    import torch
    import torch.distributed as dist

    if gpu:
        torch.cuda.synchronize()
    dist.barrier()


if __name__ == "__main__":
    mib, least, *_ = [*sys.argv[1:], *("4096", "0")[len(sys.argv) - 1 :]]
    sys.exit(main(int(mib) << 20, float(least)))
