"""`docs/guides/tensordock.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from chalicelib.backends.tensordock import catalog
from chalicelib.backends.tensordock.backend import TensorDockBackend
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from tests.backends.clock import Clock
from tests.backends.tensordock.fake import TensorDock
from tests.backends.tensordock.provider import client

GUIDE = re.sub("<!--.*?-->", "", (Path(__file__).parents[3] / "docs" / "guides" / "tensordock.md").read_text())
BACKEND, FLEET, TASK = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)


def test_its_configurations_are_accepted_and_find_what_they_name() -> None:
    assert parse(FLEET) and parse(TASK)
    config: Any = parse_backend(BACKEND)
    clock = Clock()
    backend = TensorDockBackend(config, client(TensorDock(clock.now), clock), clock.now)
    backend.check()
    found = backend.offers()
    assert {each.region for each in found} == {"united-states-chubbuck", "canada-winnipeg"}
    fits = [each for each in found if each.instance.resources.gpus[0].name == "RTX4090" and each.most_disk >= 200]
    assert any((each.instance.resources.cpus, each.instance.resources.memory_mib) == (8, 32 * 1024) for each in fits)


def test_its_numbers_are_those_of_the_code() -> None:
    cpus, memories = ([each * size for size in catalog.SIZES] for each in (catalog.CPUS, catalog.MEMORY))
    text = f"{cpus[0]}, {cpus[1]} or {cpus[2]} CPUs and {memories[0]}, {memories[1]} or {memories[2]} GB of memory"
    assert text in re.sub(r"\s+", " ", GUIDE)
    assert f"{catalog.DEARER - 1:.0%}" == "10%" and "a tenth above" in re.sub(r"\s+", " ", GUIDE)
    assert catalog.MOST_GPUS == 8 and "up to eight GPUs" in GUIDE
