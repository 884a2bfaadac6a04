"""What the tests buy on Crusoe."""

from __future__ import annotations

from dataclasses import replace

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.crusoe.fake import Crusoe
from tests.backends.fakes.books import Resource

EAST, ICELAND = "us-east1-a", "eu-iceland1-a"
CPU, L40S, H100, MI300X = "c1a.2x", "l40s-48gb.1x", "h100-80gb-sxm-ib.8x", "mi300x-192gb-ib.8x"
GIB = 1024


def offered(backend: CrusoeBackend, name: str, region: str = EAST, *, elastic: bool = False) -> Offer:
    found = (each for each in backend.offers() if (each.instance.name, each.region) == (name, region))
    return next(each for each in found if each.elastic == elastic)


def with_data_disk(backend: CrusoeBackend, name: str = "one") -> CreateRequest:
    return replace(request_for(offered(backend, CPU, elastic=True).sized(200), name), disk_mib=200 * GIB)


def running(backend: CrusoeBackend, clock: Clock, request: CreateRequest) -> list[Handle]:
    made = list(backend.create(request))
    clock.passes(60)
    assert backend.describe(made).state == "running"
    return made


def vms(crusoe: Crusoe) -> list[Resource]:
    return list(crusoe.books.existing("vm"))
