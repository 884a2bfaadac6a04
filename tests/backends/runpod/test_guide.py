"""`docs/guides/runpod.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.runpod.catalog import FLOOR_CPUS
from chalicelib.backends.runpod.facts import MOST_NODES
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from tests.backends.clock import Clock
from tests.backends.runpod.fake import Runpod
from tests.backends.runpod.provider import client

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "runpod.md").read_text()
BACKEND, FLEET, TASK, SPOT, NODES, VOLUME = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)


def test_its_configurations_are_accepted_and_find_what_they_name() -> None:
    assert all(map(parse, (FLEET, TASK, SPOT, NODES, VOLUME)))
    config: Any = parse_backend(BACKEND)
    clock = Clock()
    backend = RunpodBackend(config, client(Runpod(clock.now), clock), clock.now)
    backend.check()
    resources = ResourcesSpec.model_validate(yaml.safe_load(TASK)["resources"])
    found = backend.offers_for(OfferRequest(resources=resources))
    assert {(each.instance.name, each.region) for each in found} == {
        ("NVIDIA H100 80GB HBM3", region) for region in ("EU-SE-1", "US-KS-2")
    }


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"{FLOOR_CPUS}\n  CPUs and" in GUIDE
    assert f"up to {MOST_NODES} gets a cluster" in GUIDE
