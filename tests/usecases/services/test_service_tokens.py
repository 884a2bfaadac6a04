"""Tokens for calling services: their scope, their lifetime, and what invalidates them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api.dispatch import is_scim, is_v1
from chalicelib.api.route import Access
from chalicelib.api.routes import BUILT
from chalicelib.domain.instants import SECOND
from chalicelib.domain.serving import CallerVerdict
from chalicelib.domain.tenants import ProjectRole
from chalicelib.usecases.services import doors
from chalicelib.usecases.services.service_tokens import LONGEST, MOST_SECONDS, PREFIX, claims_of
from tests.api.rig import ADMIN, Rig, submit

HOUR = 3600
SERVICE = {"type": "service", "port": 8000, "commands": ["serve"]}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig.at(tmp_path)
    submit(made, {"run_name": "web", "configuration": SERVICE})
    return made


def issued(rig: Rig, token: str, **body: Any) -> str:
    found: str = rig.ok("P/services/create_token", body, token=token)["token"]
    return found


def lets_in(rig: Rig, token: str, run: str = "web", project: str = "main") -> bool:
    return doors.member(rig.world.plane, token, project, run).allowed


def test_one_is_good_for_all_services_of_a_project_or_for_one(rig: Rig) -> None:
    ann, side = rig.user("ann", ProjectRole.user), rig.another_project("side")
    every, one = issued(rig, ann), issued(rig, ann, run_name="web")
    assert [lets_in(rig, every, run) for run in ("web", "other", "")] == [True, True, True]
    assert [lets_in(rig, one, run) for run in ("web", "other", "")] == [True, False, False]
    assert not lets_in(rig, every, project=side.name) and not lets_in(rig, every, project="nowhere")


def test_it_opens_no_route_of_the_api(rig: Rig) -> None:
    token = issued(rig, ADMIN)
    for route in BUILT:
        if route.access not in (Access.public, Access.agent):
            path = route.path.replace("{project_name}", "main").replace("{", "").replace("}", "")
            refusal = 401 if is_v1(path) or is_scim(path) else 403
            assert rig.call(path, {}, token=token, method=route.method).status == refusal, path


def test_it_ends_in_time(rig: Rig) -> None:
    token = rig.ok("P/services/create_token", {"expires_in": 60})["token"]
    ends_at = rig.world.at // SECOND * SECOND + 60 * SECOND
    for left in (40 * SECOND, 1):
        rig.world.at = ends_at - left
        verdict = doors.member(rig.world.plane, token, "main", "web")
        assert verdict == CallerVerdict(allowed=True, ends_in=left / SECOND), "so that nobody goes by it for longer"
    rig.world.at = ends_at
    assert not lets_in(rig, token)
    assert doors.member(rig.world.plane, ADMIN, "main").ends_in is None
    for seconds in (59, MOST_SECONDS + 1):
        rig.refused("P/services/create_token", {"expires_in": seconds})


def test_it_ends_with_the_rights_and_with_the_token_of_whoever_got_it(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.user)
    bob = rig.ok("/api/users/create", {"username": "bob", "global_role": "admin"})["creds"]["token"]
    first, second = issued(rig, ann), issued(rig, bob)
    rig.deactivate("ann")
    assert not lets_in(rig, first)
    assert lets_in(rig, second)
    rig.ok("/api/users/refresh_token", {"username": "bob"}, token=bob)
    assert not lets_in(rig, second)


def test_who_is_no_member_any_more_has_none(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.user)
    token = issued(rig, ann)
    rig.ok("/api/projects/main/remove_members", {"usernames": ["ann"]})
    assert not lets_in(rig, token)


def test_a_forged_one_is_good_for_nothing(rig: Rig) -> None:
    token = issued(rig, ADMIN, run_name="web")
    claims, signature = claims_of(token), token.rpartition(".")[2]
    every = claims_of(issued(rig, ADMIN))
    written = ["", "!", "=", base64.b64encode(b"[1]").decode(), base64.b64encode(b"nonsense").decode(), "a" * LONGEST]
    forged = [f"{claims}.", f"{claims}.{signature[:-2]}", f"{every}.{signature}", claims, PREFIX, f"{PREFIX}."]
    for each in [*forged, *(f"{PREFIX}{text}.{signature}" for text in written)]:
        assert not lets_in(rig, each), each


def test_there_must_be_such_a_run_and_a_member_who_asks(rig: Rig) -> None:
    assert "There is no run nothing in project main" in rig.refused("P/services/create_token", {"run_name": "nothing"})
    stranger = rig.user("eve", ProjectRole.user, rig.another_project("side"))
    assert rig.call("/api/project/main/services/create_token", {}, token=stranger).status == 403
