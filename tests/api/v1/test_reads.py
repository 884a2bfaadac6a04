"""A resource's call reads the store no more often than the client's call that does the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.api.dispatch import Request
from chalicelib.domain.keys import Key
from chalicelib.store.port import Page, Record
from chalicelib.store.sqlite import SqliteStore
from tests.api.test_access import Sealed
from tests.fuzz.tenants import Town

P, IN = "/api/v1/projects/red", "/api/project/red"
PAIRS: list[tuple[str, str, Any, str, Any]] = [
    ("GET", "/api/v1/runs", None, "/api/runs/list", {}),
    ("GET", f"{P}/runs/seen", None, f"{IN}/runs/get", {"run_name": "seen"}),
    ("POST", f"{P}/runs/seen/stop", {}, f"{IN}/runs/stop", {"runs_names": ["seen"], "abort": False}),
    ("DELETE", f"{P}/runs/seen", {}, f"{IN}/runs/delete", {"runs_names": ["seen"]}),
    ("GET", "/api/v1/fleets", None, "/api/fleets/list", {}),
    ("GET", f"{P}/fleets/seen", None, f"{IN}/fleets/get", {"name": "seen"}),
    ("DELETE", f"{P}/fleets/seen", {}, f"{IN}/fleets/delete", {"names": ["seen"]}),
    ("GET", "/api/v1/instances", None, "/api/instances/list", {}),
    ("GET", "/api/v1/volumes", None, "/api/volumes/list", {}),
    ("GET", f"{P}/gateways", None, f"{IN}/gateways/list", {}),
    ("GET", f"{P}/runs/seen/metrics", None, "GET /api/project/red/metrics/job/seen", None),
    ("GET", "/api/v1/events", None, "/api/events/list", {}),
    ("GET", "/api/v1/projects", None, "/api/projects/list", {}),
    ("GET", P, None, "/api/projects/red/get", {}),
    ("GET", f"{P}/members", None, "/api/projects/red/get", {}),
    ("GET", f"{P}/secrets", None, f"{IN}/secrets/list", {}),
    ("GET", f"{P}/secrets/seen", None, f"{IN}/secrets/get", {"name": "seen"}),
    ("GET", f"{P}/quota", None, "/api/projects/red/get_quota", {}),
    ("GET", f"{P}/backends", None, f"{IN}/backends/list", {}),
    ("GET", "/api/v1/users", None, "/api/users/list", {}),
    ("GET", "/api/v1/users/me", None, "/api/users/get_my_user", {}),
]


class Counting(Sealed):
    """Counts reads. It refuses to write, so all calls meet the same records."""

    reads = 0

    def get(self, key: Key) -> Record | None:
        self.reads += 1
        return SqliteStore.get(self, key)

    def get_many(self, keys: Any) -> list[Record | None]:
        self.reads += 1
        return SqliteStore.get_many(self, keys)

    def query(self, *given: Any, **more: Any) -> Page:
        self.reads += 1
        return SqliteStore.query(self, *given, **more)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = Path(tmp_path_factory.mktemp("reads"))
    made = Town.at(folder)
    counting = Counting(folder / "plane.db", now=made.rig.world.clock.seconds)
    made.rig.world.plane = replace(made.rig.world.plane, store=counting)
    yield made
    counting.close()
    made.close()


def reads(town: Town, method: str, path: str, body: Any) -> int:
    store = town.rig.world.plane.store
    assert isinstance(store, Counting)
    token = next(caller.token for caller in town.callers if caller.name == "redadmin")
    sent = Request(method, path, {}, {"authorization": f"Bearer {token}"}, b"" if body is None else orjson.dumps(body))
    town.send(sent)  # names are remembered from now on
    store.reads = 0
    assert town.send(sent).status not in (401, 403, 404, 405, 422)
    return store.reads


@pytest.mark.parametrize(("method", "path", "body", "theirs", "their_body"), PAIRS)
def test_a_resource_costs_no_more(town: Town, method: str, path: str, body: Any, theirs: str, their_body: Any) -> None:
    their_method, their_path = theirs.split() if " " in theirs else ("POST", theirs)
    assert 0 < reads(town, method, path, body) <= reads(town, their_method, their_path, their_body)
