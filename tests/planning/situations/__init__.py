"""Situations and what is decided in them, one for every branch of a decision; `test_all_decisions` looks at them."""

from tests.planning.situations import (
    certificates,
    effects,
    fleets,
    gangs,
    gateways,
    hosts,
    machines,
    queues,
    requests,
    runs,
    services,
    volumes,
    workflows,
)
from tests.planning.situations.kit import ALL, Decided

__all__ = [
    "ALL",
    "Decided",
    "certificates",
    "effects",
    "fleets",
    "gangs",
    "gateways",
    "hosts",
    "machines",
    "queues",
    "requests",
    "runs",
    "services",
    "volumes",
    "workflows",
]
