"""What `server/config.yml` does at a start, on a real store."""

from __future__ import annotations

import base64

import pytest

from chalicelib.configuration.server import parse_server
from chalicelib.domain import keys
from chalicelib.domain.tenants import Member, Project, ProjectRole, User
from chalicelib.errors import Refused
from chalicelib.store import nouns
from chalicelib.store.seal import Sealer
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.operator.server_config import ensure_projects, refusals, sealing_keys
from chalicelib.usecases.people.projects import delete_projects, set_public, visible
from tests.world.plane import World

OWN, FIRST, SECOND = b"o" * 32, b"1" * 32, b"2" * 32


def admin_of(world: World) -> User:
    _, project = first_start(world.plane)
    user = nouns.find(world.plane.store, User, keys.user(project.owner_id))
    assert user is not None
    return user


def projects(world: World, admin: User) -> dict[str, Project]:
    return {project.name: project for project in visible(world.plane.store, admin, not_joined=True)}


def test_projects_are_made_once_and_others_left_alone(world: World) -> None:
    admin = admin_of(world)
    config = parse_server("projects: [{name: main}, {name: research}]").config
    ensure_projects(world.plane, admin, config)
    made = projects(world, admin)
    assert made.keys() == {"main", "research"} and made["research"].owner_id == admin.id
    member = nouns.find(world.plane.store, Member, keys.member(made["research"].id, admin.id))
    assert member is not None and member.role is ProjectRole.admin
    changed = set_public(world.plane, admin, made["research"], is_public=True)
    ensure_projects(world.plane, admin, config)
    ensure_projects(world.plane, admin, parse_server("projects: []").config)
    assert {p.id for p in projects(world, admin).values()} == {made["main"].id, changed.id}
    assert projects(world, admin)["research"].is_public


def test_a_project_that_was_deleted_is_made_anew(world: World) -> None:
    admin = admin_of(world)
    config = parse_server("projects: [{name: research}]").config
    ensure_projects(world.plane, admin, config)
    first = projects(world, admin)["research"].id
    delete_projects(world.plane, admin, ["research"])
    assert "research" not in projects(world, admin)
    ensure_projects(world.plane, admin, config)
    assert projects(world, admin)["research"].id != first


def test_what_cannot_be_done_is_refused_by_name_and_place() -> None:
    file = parse_server(
        "projects:\n"
        "- name: main\n"
        "  backends:\n"
        "  - type: runpod\n"
        "    creds: {type: api_key, api_key: hush}\n"
        "  - creds: {type: default}\n"
        "    type: aws\n"
        "plugins: [quota, audit]\n",
        filename="config.yml",
    )
    found = refusals(file, ["runpod"])
    problems = [(p.line, p.column, p.path, p.code) for p in found]
    assert problems == [
        (7, 5, "projects.0.backends.1.type", "unsupported"),
        (8, 11, "plugins.0", "unsupported"),
        (8, 18, "plugins.1", "unsupported"),
    ]
    assert "`aws`" in found[0].message and "remove it" in found[0].hint and "runpod" in found[0].hint
    assert "`quota`" in found[1].message
    assert [p.path for p in refusals(file, ())][:2] == [f"projects.0.backends.{n}.type" for n in (0, 1)]
    assert "hush" not in repr(refusals(file, ()))


def test_a_type_that_the_simulated_cloud_stands_in_for_is_refused() -> None:
    file = parse_server("projects: [{name: main, backends: [{type: aws, creds: {type: default}}]}]\n")
    [found] = refusals(file, ["aws"], "aws")
    assert found.path == "projects.0.backends.0.type" and "stands in for `aws`" in found.message
    assert refusals(file, ["aws"], "gcp") == ()


def test_a_file_without_such_things_is_not_refused() -> None:
    assert refusals(parse_server("projects: [{name: a, backends: []}]\nplugins: []\n"), ()) == ()


def ring(*listed: str) -> tuple[bytes, ...]:
    text = {"identity": "{type: identity}"} | {
        name: f"{{type: aes, name: {name}, secret: {base64.b64encode(key).decode()}}}"
        for name, key in (("first", FIRST), ("second", SECOND))
    }
    entries = ", ".join(text[name] for name in listed)
    return sealing_keys(parse_server(f"projects: []\nencryption: {{keys: [{entries}]}}").config, OWN)


def test_the_first_key_seals_and_the_servers_own_always_opens() -> None:
    assert sealing_keys(parse_server("projects: []").config, OWN) == (OWN,)
    assert ring() == (OWN,) and ring("identity") == (OWN,)
    assert ring("first") == (FIRST, OWN) and ring("first", "identity") == (FIRST, OWN)
    assert ring("identity", "first") == (OWN, FIRST)
    assert ring("second", "first") == (SECOND, FIRST, OWN)


def test_keys_are_changed_without_losing_a_secret() -> None:
    before, during, after = Sealer(OWN), Sealer(*ring("first")), Sealer(*ring("second", "first"))
    old, newer = before.seal("old", context="c"), during.seal("newer", context="c")
    assert [after.open(sealed, context="c") for sealed in (old, newer)] == ["old", "newer"]
    assert Sealer(FIRST).open(newer, context="c") == "newer"  # under the first key, and not the server's own
    with pytest.raises(Refused, match="Put back the key"):
        Sealer(*ring("second")).open(newer, context="c")
