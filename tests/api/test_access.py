"""Every caller against every route, with calls that would succeed: what `access.txt` says is what happens.

The table is the specification, kept by hand: a route must have its row there, and a row its route. A call is made for
real up to its first write, which this store refuses, so all the calls meet the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.api.dispatch import Request, is_v1
from chalicelib.api.route import Access, Route, of_directories
from chalicelib.api.routes import ROUTES
from chalicelib.errors import Refused
from chalicelib.store.port import Change
from chalicelib.store.sqlite import SqliteStore
from chalicelib.usecases.agents.downloads import publish
from tests.api.rig import fleet, task
from tests.api.uploads import BOUNDARY, multipart, tar
from tests.api.v1.bodies import body_of
from tests.fuzz.tenants import Town
from tests.fuzz.watch import Caller
from tests.harness.rows import each

TABLE = Path(__file__).parent / "access.txt"
# By the letters of the table's columns; `{}` is the project.
COLUMNS = {
    "n": "nobody", "f": "forger", "d": "{}gone", "s": "loner", "o": "blueadmin",
    "u": "{}user", "m": "{}manager", "a": "{}admin", "g": "root", "i": "{}agent", "j": "blueagent",
}  # fmt: skip
PRIVATE, PUBLIC = "red", "green"
_CONFIGURATION = {"type": "gateway", "backend": "aws", "region": "r"}  # whose machines can't be gateways
_SPEC = {"configuration": _CONFIGURATION}
GATEWAY = {"spec": _SPEC, "plan": {"spec": _SPEC}, "configuration": _CONFIGURATION}
NOTHING = "nothing is written here"
IDS = [f"{route.method} {route.path}" for route in ROUTES]


class Sealed(SqliteStore):
    """Reads, and refuses to write."""

    def commit(self, changes: Sequence[Change]) -> None:
        if changes:
            raise Refused(NOTHING)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = Path(tmp_path_factory.mktemp("access"))
    made = Town.at(folder)
    plane = made.rig.world.plane
    publish(plane.blobs, b"#!zip")
    sealed = Sealed(folder / "plane.db", now=made.rig.world.clock.seconds)
    made.rig.world.plane = replace(plane, store=sealed)
    yield made
    sealed.close()
    made.close()


def table() -> dict[str, tuple[str, str]]:
    """By "METHOD path": what happens in a private project, and in a public one, a character for each column."""
    lines = [line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return {f"{method} {path}": (private, public) for method, path, private, public in lines}


def body(route: Route, town: Town, project: str) -> bytes:
    """What a caller sends who means it; those about a user are about the project's `user`."""
    things = {name: choices[0] for name, choices in town.handles_of(project).items()}
    user, spec = f"{project}user", {**task("fresh"), "profile": {"name": "p"}}
    bodies: dict[str, Any] = {
        "runs/get_plan": {"run_spec": spec}, "gpus/list": {"run_spec": spec},
        "runs/apply": {"plan": {"run_spec": spec, "current_resource": None}, "force": False},
        "events/changes": {"prev_recorded_at": "2026-11-21T04:00:00Z"},
        "automations/add": {"spec": {**spec, "configuration": {**spec["configuration"], "name": "fresh"}}},
        "runs/stop": {"runs_names": ["seen"], "abort": False},
        "fleets/get_plan": {"spec": fleet("fresh")}, "fleets/apply": {"plan": {"spec": fleet("fresh")}, "force": False},
        "fleets/delete_instances": {"name": "seen", "instance_nums": [0]}, "instances/get": {"id": things["instance"]},
        "get_instance_health_checks": {"fleet_name": "seen", "instance_num": 0},
        **dict.fromkeys(("gateways/get_plan", "gateways/apply", "gateways/create"), GATEWAY),
        "exports/create": {"name": "fresh"}, "exports/update": {"name": "fresh"}, "exports/delete": {"name": "fresh"},
        "imports/delete": {"export_name": "fresh", "export_project_name": "blue"},
        "projects/create": {"project_name": "fresh"}, "set_members": members(user, f"{project}admin"),
        "add_members": members("loner"), "set_quota": {"username": user, "jobs": 3},
        "remove_members": {"usernames": [user]}, "projects/update": {"is_public": project == PRIVATE},
        "users/create": {"username": "fresh", "global_role": "user"}, "users/delete": {"users": [user]},
        "users/update": {"username": user, "global_role": "user", "active": False},
        "access_tokens/create": {"name": "fresh", "verbs": ["read"]}, "access_tokens/list": {},
        "scim/tokens/create": {"name": "fresh"}, "scim/tokens/list": {}, "scim/tokens/revoke": {"name": "fresh"},
        "access_tokens/revoke": {"name": "fresh"}, "access_tokens/revoke_own": {},
        "oidc/exchange": {"id_token": "a.b.c"},
        "sign_in_codes/exchange": {"code": "unknown"}, "sign_in_codes/create": {},
        "repos/init": {"repo_id": "fresh", "repo_info": {"repo_type": "virtual"}, "repo_creds": None},
        "secrets/create_or_update": {"name": "fresh", "value": "v"},
        "logs/poll": {"run_name": "seen", "job_submission_id": things["task"], "limit": 10},
        "/agent/sync": {"v": 1, "instance": things["instance"], "boot": "boot-2", "seq": 1},
        "/agent/left": {"instance": things["instance"]}, "create_join": {"name": "seen"},
        "list_joins": {"name": "seen"}, "revoke_join": {"name": "seen", "id": things["instance"]},
        "get_archive_by_hash": {"hash": things["hash"]}, "backends/delete": {"backends_names": ["aws"]},
        "backends/create": {"type": "aws", "creds": {"type": "default"}},
        "backends/update": {"type": "aws", "creds": {"type": "default"}},
        "backends/create_yaml": {"config_yaml": "type: aws\ncreds: {type: default}"},
        "backends/update_yaml": {"config_yaml": "type: aws\ncreds: {type: default}"},
    }  # fmt: skip
    usual = {name: things[name] for name in ("run_name", "runs_names", "name", "names", "repo_id", "repos_ids")}
    usual |= {name: things[name] for name in ("projects_names", "secrets_names")}
    if is_v1(route.path):
        chosen = body_of(route)
        return orjson.dumps(
            {**chosen, "public": project == PRIVATE} if route.method == "PATCH" and "public" in chosen else chosen
        )
    plain = route.path.replace("{project_name}/", "")
    chosen = [found for ending, found in bodies.items() if plain.endswith(ending)]
    return orjson.dumps(chosen[0] if chosen else {"username": user} if "/users/" in plain else named(plain, usual))


def named(path: str, usual: dict[str, Any]) -> dict[str, Any]:
    """The usual names, where they mean something: lists take none."""
    return {} if path.endswith("/list") else usual


def members(user: str, *admins: str) -> dict[str, Any]:
    settings = [{"username": user, "project_role": "user"}]
    return {"members": settings + [{"username": name, "project_role": "admin"} for name in admins]}


def request(route: Route, town: Town, project: str, token: str | None) -> Request:
    names = {name: str(choices[0]) for name, choices in town.handles_of(project).items()}
    joins = route.method == "PUT" and route.path.endswith("/members/{user_name}")
    ours = {
        "fleet_name": "seen", "volume_name": "seen", "gateway_name": "seen", "secret_name": "seen",
        "instance_id": names["instance"], "instance_num": "0", "backend_type": "aws",
        "user_name": "loner" if joins else f"{project}user",
    }  # fmt: skip
    path = route.path.format(
        **{**names, **ours, "backend_name": "aws", "path": "x", "stream_id": "x", "provider": "corp"},
        **dict.fromkeys(("part", "next", "last"), "x"),
    )
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if "/upload_" not in route.path:
        return Request(route.method, path, {}, headers, body(route, town, project))
    headers["content-type"] = f"multipart/form-data; boundary={BOUNDARY}"
    return Request(route.method, path, {"repo_id": "seen"}, headers, multipart(tar(("a", b"1"))))


def what(town: Town, route: Route, project: str, caller: Caller) -> str:
    """The character of one call: as the table's head explains."""
    reply = town.send(request(route, town, project, caller.token))
    if reply.status in (401, 403):
        return "."
    if 200 <= reply.status < 400 or NOTHING.encode() in reply.body:
        return "+"
    assert reply.status in (400, 404, 409, 410, 422), reply
    return "u" if b"doesn't support" in reply.body else "w"


def row(town: Town, route: Route) -> tuple[str, str]:
    known = {caller.name: caller for caller in town.callers}
    private, public = (
        "".join(what(town, route, project, known[name.format(project)]) for name in COLUMNS.values())
        for project in (PRIVATE, PUBLIC)
    )
    return private, public


def test_every_route_has_its_row_and_every_row_its_route() -> None:
    assert sorted(table()) == sorted(IDS)


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_callers_get_what_the_table_says(town: Town, route: Route) -> None:
    assert row(town, route) == table()[f"{route.method} {route.path}"]


@each("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.slow
def test_who_may_not_call_learns_nothing_from_a_body(town: Town, route: Route) -> None:
    """The caller comes before the body: nonsense gets 403 from those whom the table keeps out of every project."""
    known = {caller.name: caller for caller in town.callers}
    outside = [known[name.format(PRIVATE)].token for letter, name in COLUMNS.items() if letter in "nfd"]
    for token in outside if route.access not in (Access.public, Access.agent) else []:
        sent = replace(request(route, town, PRIVATE, token), body=b"{ not json")
        plain = not is_v1(route.path) and not of_directories(route)
        assert town.send(sent).status in ((403,) if plain else (401, 403))


def test_a_route_within_a_project_asks_for_a_place_in_it() -> None:
    """A row whose path names a project but that asks for less would let every tenant in."""
    tenants = {Access.visitor, Access.member, Access.manager, Access.project_admin, Access.keeper}
    assert [route.path for route in ROUTES if "{project_name}" in route.path and route.access not in tenants] == []
