"""Trains on all nodes together, and goes on from the last checkpoint that every node has: `train.py FOLDER`.

A machine may be taken away at any moment, also while a checkpoint is written. So each is written beside the last one
and renamed, two are kept, and the nodes agree on the newest step that all of them have.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

EVERY = 10  # steps between checkpoints: what an interruption may cost


def saved(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.pt"))


def save(folder: Path, step: int, state: dict[str, Any]) -> None:
    import torch

    beside = folder / f"{step}.new"
    torch.save(state, beside)
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    beside.rename(folder / f"{step}.pt")
    for old in saved(folder)[:-2]:
        (folder / f"{old}.pt").unlink()


def common_step(folder: Path) -> int:
    """The last step that all nodes have; 0 if there is none."""
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, saved(folder))
    return max(set.intersection(*map(set, found)), default=0)


def main(folder: Path) -> None:
    import torch
    import torch.distributed as dist
    from data import FEATURES, STEPS, batch

    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(FEATURES, 1).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    begin = common_step(folder)
    if begin:
        state = torch.load(folder / f"{begin}.pt", map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    print(f"node {rank} begins after step {begin}", flush=True)
    for step in range(begin + 1, STEPS + 1):
        points, values = (each.to(device) for each in batch(step, rank))
        loss = torch.nn.functional.mse_loss(model(points), values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0 or step == STEPS:
            save(folder, step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            print(f"step {step}: loss {loss.item():.6f}", flush=True)
    counted = optimizer.state[model.module.weight]["step"]  # by Adam itself, through every checkpoint
    print(f"node {rank} ends: the model has made {int(counted)} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
