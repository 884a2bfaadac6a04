"""Nonsense of any kind at every route: an answer for the caller, never an error of ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.api import dispatch
from chalicelib.api.route import Route, of_directories
from chalicelib.api.routes import ROUTES
from chalicelib.domain.directory import DirectoryToken
from chalicelib.domain.tenants import hash_token
from chalicelib.store import nouns
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.harness.examples import many, seeds
from tests.harness.rows import each

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    1e300,
    "",
    "\x00",
    "é" * 2000,
    [],
    [[]],
    {},
    {"": None},
    ["x"] * 50,
    {"a": {"b": []}},
    "..",
    "9" * 30,
)

RUN = {**task("fuzz"), "profile": {"name": "p"}, "file_archives": [], "ssh_key_pub": None}
SCIM = "dstack-scim_text"
ID = "6628ef34-2e9a-4af5-aab4-144f175852f7"
BODIES: dict[str, Any] = {
    "get_plan": {"run_spec": RUN, "spec": fleet(), "max_offers": 3},
    "apply": {"plan": {"run_spec": RUN, "spec": fleet("fz"), "current_resource": None}, "force": False},
    "list": {
        "project_name": "main", "prev_submitted_at": "2026-11-21T05:11:20.465869+00:00", "prev_run_id": ID, "limit": 5,
        "prev_created_at": "2026-11-21T05:11:20Z", "prev_id": ID, "fleet_ids": [ID], "run_spec": RUN,
        "group_by": ["count"],
    },
    "get": {"name": "pool", "run_name": "seen", "id": None},
    "stop": {"runs_names": ["seen"], "abort": False},
    "delete": {"runs_names": ["seen"], "names": ["pool"]},
    "delete_instances": {"name": "pool", "instance_nums": [0]},
    "poll": {"run_name": "seen", "job_submission_id": ID, "start_time": None, "limit": 10},
    "init": {"repo_id": "r", "repo_info": {"repo_type": "virtual"}, "repo_creds": None},
    "Users": {"userName": "ana", "active": True, "name": {"givenName": "A"}, "emails": [{"value": "a@b"}]},
    "Groups": {"displayName": "team", "externalId": "1", "members": [{"value": ID}]},
    "create_or_update": {"name": "a", "value": "b"},
}  # fmt: skip


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    rig = Rig.at(Path(tmp_path_factory.mktemp("nonsense")))
    submit(rig, task("seen"))
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet()}, "force": False})
    token = DirectoryToken(id=ID, name="okta", token_hash=hash_token(SCIM), created_at=0, created_by="admin")
    rig.world.plane.store.commit([nouns.put(token)])
    return rig


def check(rig: Rig, route: Route, body: bytes, *, path: str | None = None, query: dict[str, str] | None = None) -> None:
    where = path or filled(route, "main")
    token = SCIM if of_directories(route) else ADMIN
    request = dispatch.Request(route.method, where, query or {}, {"authorization": f"Bearer {token}"}, body)
    reply = dispatch.answer(rig.world.plane, request)
    served = 200 <= reply.status < 300 or reply.status == 303  # sent on to the console
    assert served or 400 <= reply.status < 500, (where, body[:500], reply)
    if of_directories(route) and reply.status >= 400:
        assert orjson.loads(reply.body)["detail"] and reply.status != 401, reply.body
    elif reply.status == 400:
        (entry,) = orjson.loads(reply.body)["detail"]
        assert entry.keys() <= {"msg", "code", "fields"} and entry["msg"], reply.body


def filled(route: Route, project: str) -> str:
    parts = [
        project if part == "{project_name}" else "x" if part.startswith("{") else part for part in route.path.split("/")
    ]
    return "/".join(parts)


def mutants(value: Any, rng: random.Random) -> Iterator[Any]:
    """`value` with one part of it, anywhere, replaced by each odd value, removed, or joined by a stranger."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {key: item for key, item in value.items() if key != name}
            yield {**value, name: rng.choice(ODD)}
            yield from ({**value, name: mutant} for mutant in mutants(inner, rng))
        yield {**value, "a stranger": rng.choice(ODD)}
    elif isinstance(value, list):
        yield [*value, rng.choice(ODD)]
        for index, inner in enumerate(value):
            yield from ([*value[:index], mutant, *value[index + 1 :]] for mutant in mutants(inner, rng))
    else:
        yield rng.choice(ODD)


@pytest.mark.slow
@each("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_bytes_that_mean_nothing(used: Rig, route: Route) -> None:
    for body in (
        b"\x00",
        b"\xff" * 50,
        b"nan",
        b"[1,2",
        b'{"a":1e999}',
        b"[]",
        b"null",
        b"1",
        b'"\xed\xa0\x80"',
        b"{}" * 2,
        b"--x\r\n",
    ):
        check(used, route, body)
    for odd in ("%00", "é", "a b", "x" * 3000, "..", "'; drop", "\ud800", "\n"):
        check(used, route, b"{}", path=filled(route, odd) if "{" in route.path else None, query={odd: odd})


@pytest.mark.slow
@each("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_json_that_is_nearly_right(used: Rig, route: Route) -> None:
    base = BODIES.get(route.path.rsplit("/", 1)[-1], {"name": "x"})
    for seed in seeds(2):
        for body in mutants(base, random.Random(seed)):
            check(used, route, orjson.dumps(body))


@pytest.mark.slow
@settings(max_examples=many(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.dictionaries(st.text(max_size=12), VALUES, max_size=5))
def test_any_json_at_all(used: Rig, body: dict[str, Any]) -> None:
    """Every route is tried on the same examples: making one costs more than asking all of them."""
    data = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    for route in ROUTES:
        check(used, route, data)
