"""The first start, on a real store."""

from __future__ import annotations

import subprocess

import pytest

from chalicelib.domain import keys
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User, hash_token
from chalicelib.errors import Invalid
from chalicelib.store import nouns
from chalicelib.usecases.operator.first_start import first_start
from tests.world.plane import World


def start(world: World, token: str | None = None) -> tuple[str | None, Project]:
    return first_start(world.plane, token)


def admin_of(world: World) -> User:
    found = nouns.find_target(world.plane.store, keys.user_name("admin"))
    assert found is not None
    user = nouns.find(world.plane.store, User, keys.user(found[0]))
    assert user is not None
    return user


def owner_of(world: World, token: str) -> str | None:
    found = nouns.find_target(world.plane.store, keys.token(hash_token(token)))
    return None if found is None else found[0]


def test_it_makes_an_admin_a_project_and_a_membership(world: World) -> None:
    token, project = start(world)
    admin = admin_of(world)
    assert token is not None and owner_of(world, token) == admin.id
    assert (admin.role, admin.active, admin.token_hash) == (GlobalRole.admin, True, hash_token(token))
    assert (project.name, project.owner_id) == ("main", admin.id)
    member = nouns.find(world.plane.store, Member, keys.member(project.id, admin.id))
    assert member is not None and member.role is ProjectRole.admin


def test_a_second_start_changes_nothing_and_shows_no_token(world: World) -> None:
    _, project = start(world)
    before = admin_of(world)
    again, same = start(world)
    assert again is None and same.id == project.id and admin_of(world) == before


def test_a_given_token_is_taken_and_given_again_is_not_a_change(world: World) -> None:
    assert start(world, "my-own-token")[0] == "my-own-token"
    assert owner_of(world, "my-own-token") == admin_of(world).id
    assert start(world, "my-own-token")[0] is None


def test_another_token_moves_the_admin_to_it_and_ends_the_old_one(world: World) -> None:
    first, _ = start(world)
    assert first is not None
    assert start(world, "newer")[0] == "newer"
    assert owner_of(world, first) is None and owner_of(world, "newer") == admin_of(world).id


@pytest.mark.parametrize("token", ["", "two words", "tökén", "line\n"])
def test_a_token_that_no_header_could_carry_is_refused(world: World, token: str) -> None:
    with pytest.raises(Invalid, match="admin token"):
        start(world, token)


def test_the_key_pair_is_one_and_the_private_half_is_sealed(world: World, tmp_path) -> None:
    start(world)
    admin = admin_of(world)
    assert admin.ssh_public_key.startswith("ssh-") and admin.ssh_public_key.endswith("\n")
    assert "PRIVATE" not in admin.ssh_private_key
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text(world.plane.seal.open(admin.ssh_private_key, context=f"user/{admin.id}"))
    derived = subprocess.run(["ssh-keygen", "-y", "-f", path], capture_output=True, text=True, check=True).stdout
    assert derived.split()[:2] == admin.ssh_public_key.split()[:2]
