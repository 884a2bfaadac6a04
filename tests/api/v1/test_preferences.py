from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.api.dispatch import Reply, Request
from chalicelib.api.routes import BUILT, ByName
from chalicelib.api.routes.v1 import SETTLING
from chalicelib.api.v1.preferences import HELD, settled, wait_of
from chalicelib.domain.facts import BackendFacts
from tests.api.rig import Rig
from tests.api.v1.bodies import FLEET, GATEWAY, TASK, VOLUME
from tests.api.v1.rest import Client
from tests.world.ports import accounts


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [("wait=10", 10), ('Wait = "7"', 7), ("respond-async, wait=3; x=y", 3), ("wait=3, wait=9", 3),
     ("wait=999999", HELD), ("", 0), ("wait", 0), ("wait=-1", 0), ("wait=1.5", 0), ("await=3", 0),
     ("wait=9999999", 0)],
)  # fmt: skip
def test_what_a_caller_prefers(prefer: str, seconds: int) -> None:
    assert wait_of(Request("GET", "/api/v1/runs", headers={"prefer": prefer}), HELD) == seconds
    assert wait_of(Request("GET", "/api/runs/list", headers={"prefer": prefer}), HELD) == 0


def test_a_write_keeps_its_status_and_shows_what_was_read_last() -> None:
    first = Reply(201, {"Location": "/x", "Content-Type": "application/json"}, b"1")
    last = Reply(200, {"ETag": "t", "Content-Type": "application/json"}, b"2")
    found = settled(first, last, 5)
    assert (found.status, found.body, found.headers["Location"], found.headers["ETag"]) == (201, b"2", "/x", "t")
    assert found.headers["Preference-Applied"] == "wait=5"
    assert settled(last, Reply(304, {"ETag": "t"}, b""), 5).status == 304
    assert settled(first, Reply(404, {}, b"gone"), 5).body == b"1"


def test_what_settles_is_what_the_table_says(tmp_path: Path) -> None:
    """Every call of the table answers with a resource that isn't settled yet."""
    api = Client.of(Rig.at(tmp_path, backends=accounts(BackendFacts(name="aws", gateways=True, volumes=True))))
    project = f"/api/v1/projects/{api.project}"
    fleet = {**FLEET, "nodes": {"min": 1, "target": 1, "max": 1}}
    for noun, body in (("runs", TASK), ("fleets", fleet), ("volumes", VOLUME), ("gateways", GATEWAY)):
        made = api.call("POST", f"{project}/{noun}", {**body, "name": "one"})
        read = api.call("GET", f"{project}/{noun}/one")
        assert made.settling == read.settling is not None, (made, read)
        assert made.settling is not None and made.settling.path == f"{project}/{noun}/one"
    assert api.call("POST", f"{project}/runs/one/stop").settling is not None
    names = {route.handler.name for route in BUILT if isinstance(route.handler, ByName)}
    assert len(SETTLING) == 2 * 4 + 1 and names.issuperset(SETTLING)
