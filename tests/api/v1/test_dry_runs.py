"""A dry run says what the request would do, and writes nothing: each write, each caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from chalicelib.api.dispatch import Reply, Request, is_v1
from chalicelib.api.route import Route
from chalicelib.api.routes import ROUTES
from chalicelib.errors import Refused
from chalicelib.store.port import Change, Check
from chalicelib.store.sqlite import SqliteStore
from tests.api.test_access import PRIVATE, request
from tests.fuzz.tenants import Town
from tests.harness.rows import each

WRITES = [route for route in ROUTES if is_v1(route.path) and route.method != "GET"]
CALLERS = ("nobody", f"{PRIVATE}user", f"{PRIVATE}manager", f"{PRIVATE}admin", "root", "loner")
WRITES_HERE = "it would be written here"


class Sealed(SqliteStore):
    """Refuses what is written."""

    def commit(self, changes: Sequence[Change]) -> None:
        if any(not isinstance(change, Check) for change in changes):
            raise Refused(WRITES_HERE)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = Path(tmp_path_factory.mktemp("dry"))
    made = Town.at(folder)
    sealed = Sealed(folder / "plane.db", now=made.rig.world.clock.seconds)
    made.rig.world.plane = replace(made.rig.world.plane, store=sealed)
    yield made
    sealed.close()
    made.close()


def asked(town: Town, sent: Request) -> Reply:
    """The reply, once it is sure that nothing was written and nobody woken."""
    plane = town.rig.world.plane
    before = plane.store.scan(limit=10_000), plane.blobs.list(""), list(town.rig.world.woken)
    reply = town.send(sent)
    assert (plane.store.scan(limit=10_000), plane.blobs.list(""), list(town.rig.world.woken)) == before
    return reply


@pytest.mark.slow
@each("route", WRITES, ids=lambda route: f"{route.method} {route.path}")
@each("name", CALLERS)
def test_a_dry_run_says_what_happens_without_it(town: Town, route: Route, name: str) -> None:
    token = next(caller.token for caller in town.callers if caller.name == name)
    sent = request(route, town, PRIVATE, token)
    real = asked(town, sent)
    dry = asked(town, replace(sent, query={"dry_run": "true"}, headers={**sent.headers, "idempotency-key": "k"}))
    if WRITES_HERE.encode() in real.body:
        assert dry.status == 200 and orjson.loads(dry.body)["action"] != "none", dry
    elif real.status < 300:
        assert (dry.status, orjson.loads(dry.body)["action"]) == (200, "none"), dry
    else:
        assert (dry.status, orjson.loads(dry.body)["detail"]) == (real.status, orjson.loads(real.body)["detail"])


@pytest.mark.slow
def test_most_writes_come_as_far_as_to_write(town: Town) -> None:
    """Else the test above would show little."""
    token = next(caller.token for caller in town.callers if caller.name == "root")
    far = [route for route in WRITES if WRITES_HERE.encode() in asked(town, request(route, town, PRIVATE, token)).body]
    assert len(far) > len(WRITES) / 2
