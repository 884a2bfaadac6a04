"""What tests buy on Nebius."""

from __future__ import annotations

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.conformance.requests import request_for
from tests.backends.fakes.books import Resource
from tests.backends.nebius.fake import Nebius
from tests.backends.test_nebius import all_offers

EIGHT, ONE, CPU = "gpu-h100-sxm 8gpu-128vcpu-1600gb", "gpu-h100-sxm 1gpu-16vcpu-200gb", "cpu-d3 4vcpu-16gb"


def offer(name: str, region: str = "eu-north1", *, spot: bool = False) -> Offer:
    wanted = (name, region, spot)
    kinds = {(each.instance.name, each.region, each.instance.resources.spot): each for each in all_offers()}
    return kinds[wanted]


def bought(backend: NebiusBackend, name: str = CPU, *, spot: bool = False) -> list[Handle]:
    return list(backend.create(request_for(offer(name, spot=spot))))


def vm(fake: Nebius) -> Resource:
    (found,) = fake.books.existing("vm")
    return found
