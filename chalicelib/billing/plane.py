"""What a control plane in AWS costs: prices, and how much of each thing an installation uses.

Pure. Costs have four main drivers: the schedules, which run whether or not anything happens; an account, which is swept
and whose offers are fetched; an instance, whose agent reports; and a run. Further drivers are each additional node of a
run and the state machine that starts its nodes; a service's replica, to which streams are opened; a gateway's replica,
which polls its configuration; a busy service, about which each of these reports; and a state change, if changes are
announced on a bus. `plane_rates.py` has the measured use of each (`make cost`), and a bill is a sum of products. Calls
and bytes are measured. The time that a function takes can't be measured without AWS, so `SECONDS` assumes it. Prices
are those of one region, without the free tier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

REGION, READ_IN = "us-east-1", "November 2026"
HOURS = 730  # of a month
MILLION = 1_000_000
RUNS = 60  # runs a month on an instance, unless they are counted
RETENTION_MONTHS = 3  # how long a run's records are kept: the default of DSTACK_RETAIN_EVENTS and _LOGS

Usage = Mapping[str, float]  # amounts by item


class Price(NamedTuple):
    dollars: float
    per: float
    unit: str


PRICES: Mapping[str, Price] = {
    "Lambda requests": Price(0.20, MILLION, "million"),
    "Lambda time": Price(0.0000166667, 1, "GB-second"),
    "API Gateway requests": Price(3.50, MILLION, "million"),
    "table writes": Price(0.625, MILLION, "million units"),
    "table reads": Price(0.125, MILLION, "million units"),
    "table storage": Price(0.45, 1, "GB-month"),  # with point-in-time recovery
    "S3 writes": Price(5.00, MILLION, "million"),  # listings too
    "S3 reads": Price(0.40, MILLION, "million"),
    "S3 storage": Price(0.023, 1, "GB-month"),
    "queue requests": Price(0.40, MILLION, "million"),
    "state transitions": Price(25.0, MILLION, "million"),
    "bus events": Price(1.00, MILLION, "million"),
    "function logs": Price(0.53, 1, "GB"),  # ingested, and stored for a month
}

SECONDS: Mapping[str, float] = {  # of an invocation, on average
    "api": 0.05,
    "agent_sync": 0.015,
    "reconcile": 0.05,
    "reap_idle": 0.05,
    "sweep_orphans": 0.05,
    "refresh_catalog": 0.05,
    "provider_clouds/refresh": 10.0,
}
USUALLY = 0.15  # of any other function


@dataclass(frozen=True)
class CostLine:
    driver: str
    item: str
    amount: float  # a month
    dollars: float


def bill(rates: Mapping[str, Usage], counts: Mapping[str, float]) -> list[CostLine]:
    """A month's bill: what each driver uses and costs, the most expensive first."""
    lines = [
        CostLine(driver, item, count * used, count * used * price(item))
        for driver, count in counts.items()
        for item, used in rates[driver].items()
    ]
    return sorted((line for line in lines if line.dollars), key=lambda line: -line.dollars)


def price(item: str) -> float:
    """The price of one unit of an item."""
    found = PRICES[item]
    return found.dollars / found.per


def total(lines: Iterable[CostLine]) -> float:
    return sum(line.dollars for line in lines)


def counts(
    instances: float,
    runs: float | None = None,
    changes: Mapping[str, float] | None = None,
    more: Mapping[str, float] | None = None,
    accounts: float | None = None,
) -> dict[str, float]:
    """How many there are of each driver. `runs`: a month, in all. `changes`: state changes that one of a driver makes,
    if they are announced. `more`: how many there are of what services and runs on several nodes add. `accounts`: one,
    if there are instances, unless they are counted."""
    swept = min(1.0, instances) if accounts is None else accounts
    found = {SCHEDULES: 1, **({ACCOUNT: swept} if swept else {})}
    found |= {INSTANCE: instances, RUN: RUNS * instances if runs is None else runs, **(more or {})}
    changed = sum(found.get(driver, 0) * number for driver, number in (changes or {}).items())
    return found if changes is None else found | {CHANGE: changed}


SCHEDULES, ACCOUNT = "the schedules", "an account"
INSTANCE, RUN, CHANGE = "an instance", "a run", "a state change"
NODE, START = "a further node of a run", "a start on several nodes"
REPLICA, DOOR, BUSY = "a service's replica", "a gateway's replica", "a busy service"
