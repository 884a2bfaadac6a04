"""How long unused records are kept. Records of anything that still runs are never erased, whatever these settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Retention:
    """Days."""

    events: int = 90
    metrics: int = 7  # the points of every five minutes; those in between are kept for an hour
    logs: int = 30  # after the run's end
    deleted: int = 1  # what is left of a run or a project after its deletion
    fleets: int = 30  # the records of fleets, instances, volumes and gateways, after their end
    archives: int = 30  # uploaded files and code, after they were last uploaded or used
