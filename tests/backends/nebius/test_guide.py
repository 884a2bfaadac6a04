"""`docs/guides/nebius.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import InvalidCredentials
from tests.backends.clock import Clock
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.provider import InProcess, client, config

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "nebius.md").read_text()
BACKEND, FLEET, TASK, RESERVED, NODES, VOLUME = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)


def test_its_configurations_are_accepted_and_find_what_they_name() -> None:
    assert all(map(parse, (FLEET, TASK, RESERVED, NODES, VOLUME)))
    given: Any = parse_backend(BACKEND)
    clock = Clock()
    fake = Nebius(clock.now)
    backend = NebiusBackend(config(regions=given.regions), client(fake, clock.now), clock.now)
    backend.check()
    offers = {each.instance.name: each for each in backend.offers()}
    for written, name in ((TASK, "gpu-h100-sxm 1gpu-16vcpu-200gb"), (NODES, "gpu-h100-sxm 8gpu-128vcpu-1600gb")):
        wanted = ResourcesSpec.model_validate(yaml.safe_load(written)["resources"])
        assert wanted.gpu is not None and wanted.gpu.count.min == len(offers[name].instance.resources.gpus)
    assert "gpu-h100-sxm 1gpu-16vcpu-200gb" in GUIDE


def test_a_key_that_isnt_one_is_refused_in_words() -> None:
    given: Any = parse_backend(BACKEND)
    clock = Clock()
    with pytest.raises(InvalidCredentials, match="isn't an RSA key in PEM form"):
        NebiusBackend(given, NebiusClient(given.creds, clock.now, InProcess(Nebius(clock.now))), clock.now).check()
