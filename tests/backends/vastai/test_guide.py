"""`docs/guides/vastai.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from chalicelib.backends.vastai import catalog
from chalicelib.backends.vastai.backend import VastAIBackend
from chalicelib.backends.vastai.client import PAGE
from chalicelib.backends.vastai.errors import PAUSE
from chalicelib.backends.vastai.facts import LISTS_WITHIN
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from tests.backends.clock import Clock
from tests.backends.vastai.fake import Vast
from tests.backends.vastai.provider import client

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "vastai.md").read_text()
BACKEND, FLEET, TASK = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)


def test_its_configurations_are_accepted_and_find_what_they_name() -> None:
    assert parse(FLEET)
    task: Any = parse(TASK)
    config: Any = parse_backend(BACKEND)
    clock = Clock()
    backend = VastAIBackend(config, client(Vast(clock.now), clock), clock.now)
    backend.check()
    resources = ResourcesSpec.model_validate(yaml.safe_load(TASK)["resources"])
    options = task.backend_options[0].model_dump(exclude={"type"})
    found = backend.offers_for(OfferRequest(resources=resources, spot=None, options=options))
    assert {(each.instance.name, each.region, each.instance.resources.spot) for each in found} == {
        ("RTX 4090", "us-california", spot) for spot in (False, True)
    }


def test_its_numbers_are_those_of_the_code() -> None:
    for text in (
        f"{catalog.MARGIN - 1:.0%} above the least",
        f"{catalog.RELIABILITY:.0%} or more",
        f"CUDA {catalog.CUDA}",
        f"{catalog.DOWNLOAD} Mbit/s",
        f"the {catalog.BEST} with the best score",
        f"{int(PAGE * LISTS_WITHIN / SECOND / PAUSE)} instances",
    ):
        assert text in re.sub(r"\s+", " ", GUIDE), text
