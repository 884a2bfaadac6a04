"""`docs/guides/crusoe.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from chalicelib.errors import MissingPermission
from tests.backends.clock import Clock
from tests.backends.crusoe.fake import Crusoe
from tests.backends.crusoe.provider import CONFIG, client, prices
from tests.backends.fakes.script import Answer, Fault

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "crusoe.md").read_text()
BLOCKS = [(kind, textwrap.dedent(text)) for kind, text in re.findall(r"(?ms)^ *```(yaml|csv)\n(.*?)^ *```", GUIDE)]
(PRICES,) = (text for kind, text in BLOCKS if kind == "csv")
BACKEND, FLEET, TASK, CLUSTER, NODES, VOLUME = (text for kind, text in BLOCKS if kind == "yaml")


def test_its_configurations_are_accepted_and_find_what_they_name(tmp_path: Path) -> None:
    assert all(map(parse, (FLEET, TASK, CLUSTER, NODES, VOLUME)))
    config: Any = parse_backend(BACKEND)
    clock, file = Clock(), tmp_path / "prices.csv"
    file.write_text(PRICES)
    fake = Crusoe(clock.now)
    backend = CrusoeBackend(CONFIG.with_(regions=config.regions), client(fake, clock), clock.now, OfflinePrices(file))
    backend.check()
    found = {(each.instance.name, each.region, each.elastic) for each in backend.offers()}
    assert found == {
        *(("c1a.2x", region, elastic) for region in config.regions for elastic in (False, True)),
        *(("l40s-48gb.1x", region, False) for region in config.regions),
        ("h100-80gb-sxm-ib.8x", "us-east1-a", False),
    }
    assert yaml.safe_load(CLUSTER)["instance_types"] == ["h100-80gb-sxm-ib.8x"]


def test_the_names_of_disks_are_those_that_offer_them(tmp_path: Path) -> None:
    names = re.findall(r"`(imagenet-[a-z-]+)`", GUIDE)
    clock, file = Clock(), tmp_path / "prices.csv"
    file.write_text(PRICES)
    fake = Crusoe(clock.now)
    backend = CrusoeBackend(CONFIG, client(fake, clock), clock.now, OfflinePrices(file))
    disks = [fake.new_disk(name, "us-east1-a", "1TiB") for name in names]
    offered = [backend.register_volume(disk.id, "us-east1-a", "").offered_to for disk in disks]
    assert offered == [("main",), ("main", "research")]


def test_a_check_names_each_list_that_the_key_may_not_read(tmp_path: Path) -> None:
    """Of all that offers and sweeps read."""
    clock = Clock()
    fake = Crusoe(clock.now)
    backend = CrusoeBackend(CONFIG, client(fake, clock), clock.now, prices(tmp_path))
    read = [backend.offers(), *map(list, (backend.list_owned(), backend.list_owned_groups()))]
    assert read[0] and list(backend.list_owned_volumes()) == []
    lists = {call.operation.name: call.operation.path for call in fake.calls}
    assert len(lists) >= 6
    for name, path in lists.items():
        fake.script.faults = [Fault(name, Answer(403, {"code": "forbidden", "message": "no"}))]
        with pytest.raises(MissingPermission, match=path.removeprefix("/v1").partition("}")[2] or path):
            backend.check()
