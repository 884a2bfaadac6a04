"""What a server answers about itself, for the tests of commands that show it."""

from __future__ import annotations

from typing import Any

SLO: dict[str, Any] = {
    "measured": True,
    "window_days": 28,
    "objectives": [
        {"name": "answers", "what": "requests get an answer that isn't an error of the server", "target": 0.999,
         "events": 120_000, "misses": 30, "attained": 0.99975, "budget_left": 0.75, "met": True, "lately": 1.0},
        {"name": "starts", "what": "jobs are begun by a machine that is up within 1 min", "target": 0.99,
         "events": 0, "misses": 0, "attained": None, "budget_left": 1.0, "met": True, "lately": None},
    ],
}  # fmt: skip

COST: dict[str, Any] = {
    "billed": True,
    "prices": "us-east-1, without free tier, read in November 2026",
    "pace": {"fast": 2.0, "slow": 60.0, "presence": 270.0, "log": 900.0},
    "counts": {"the schedules": 1.0, "an instance": 40.0, "a run": 2400.0},
    "lines": [
        {"driver": "an instance", "what": "Lambda requests", "amount": 1_752_000.0, "price": 0.2, "unit": "million",
         "dollars": 0.3504},
        {"driver": "a run", "what": "table writes", "amount": 271_200.0, "price": 0.625, "unit": "million units",
         "dollars": 0.1695},
        {"driver": "the schedules", "what": "Lambda time", "amount": 2689.1, "price": 0.0000166667,
         "unit": "GB-second", "dollars": 0.0448},
        {"driver": "the schedules", "what": "S3 writes", "amount": 480.0, "price": 5.0, "unit": "million",
         "dollars": 0.0024},
    ],
    "total": 0.57,
}  # fmt: skip

BUSY = "0.8 requests a second over 1 min, 0.5 for each replica"
READY = "2026-11-21T04:00:00Z"
SERVICE = {  # with an autoscaled group and one of a fixed number, and answers in the last minute
    "run": "chat",
    "groups": [
        {"name": "large", "fewest": 1, "most": 4, "desired": 2, "why": BUSY},
        {"name": "small", "fewest": 1, "most": 1, "desired": 1, "why": None},
    ],
    "replicas": [
        {"group": group, "status": status, "ready_at": at, "draining_at": None}
        for group, status, at in (
            ("large", "running", READY), ("large", "pulling", None), ("small", "running", READY),
        )
    ],
    "traffic": {
        "held": 1,
        "reported_at": "2026-11-21T05:00:00Z",
        "items": [],
        "first_byte": {"p50": 0.0421, "p95": 0.9, "p99": 1.25},
        "whole": {"p50": 4.5, "p95": 31.25, "p99": 300.0},
    },
}  # fmt: skip
