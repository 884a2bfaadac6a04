"""Secrets: set, read, listed without values, deleted; sealed at rest, and in no refusal or event."""

from __future__ import annotations

import pytest

from chalicelib.domain.tenants import ProjectRole
from tests.api.rig import Rig

VALUE = "correct-horse-battery"


def set_(rig: Rig, name: str = "tok", value: str = VALUE) -> dict:
    return rig.ok("P/secrets/create_or_update", {"name": name, "value": value})


def test_a_secrets_life(rig: Rig) -> None:
    made = set_(rig)
    assert rig.ok("P/secrets/list") == [{"id": made["id"], "name": "tok", "value": None}]
    assert rig.ok("P/secrets/get", {"name": "tok"}) == {"id": made["id"], "name": "tok", "value": VALUE}
    assert set_(rig, value="other")["id"] == made["id"]
    assert rig.ok("P/secrets/get", {"name": "tok"})["value"] == "other"
    assert rig.ok("P/secrets/delete", {"secrets_names": ["tok"]}) is None
    assert rig.ok("P/secrets/list") == []


def test_what_isnt_there_is_said_and_nothing_is_deleted(rig: Rig) -> None:
    set_(rig)
    reply = rig.call("/api/project/main/secrets/get", {"name": "nope"})
    assert reply.json["detail"][0]["code"] == "resource_not_exists"
    assert "'nope'" in rig.refused("P/secrets/delete", {"secrets_names": ["tok", "nope"]})
    assert len(rig.ok("P/secrets/list")) == 1


def test_very_many_are_deleted_in_several_requests(rig: Rig) -> None:
    names = [f"s{number}" for number in range(51)]
    for name in names:
        set_(rig, name)
    assert "51 secrets at once; at most 50" in rig.refused("P/secrets/delete", {"secrets_names": names})
    assert len(rig.ok("P/secrets/list")) == 51
    rig.ok("P/secrets/delete", {"secrets_names": names[:50]})
    assert [secret["name"] for secret in rig.ok("P/secrets/list")] == ["s50"]


def test_secrets_come_whole_or_in_pages_by_name(rig: Rig) -> None:
    names = ["-", "a", "a-b", "ab", "z_"]
    for name in reversed(names):
        set_(rig, name)
    assert [secret["name"] for secret in rig.ok("P/secrets/list")] == names
    seen: list[str] = []
    while page := rig.ok("P/secrets/list", {"limit": 2, "after": seen[-1] if seen else ""}):
        assert len(page) <= 2
        seen += [secret["name"] for secret in page]
    assert seen == names
    assert "limit" in rig.refused("P/secrets/list", {"limit": 0})


@pytest.mark.parametrize("name", ["", "a b", "x/y", "é", "x" * 201, "../up"])
def test_a_bad_name_is_refused(rig: Rig, name: str) -> None:
    assert "name:" in rig.refused("P/secrets/create_or_update", {"name": name, "value": "v"})


def test_a_value_that_is_too_long_is_refused_and_not_repeated(rig: Rig) -> None:
    text = rig.refused("P/secrets/create_or_update", {"name": "tok", "value": VALUE * 300})
    assert text.startswith("value: ") and "5000" in text and VALUE not in text


def test_a_value_of_another_type_is_refused_without_showing_it(rig: Rig) -> None:
    assert VALUE not in rig.refused("P/secrets/create_or_update", {"name": "tok", "value": [VALUE]})


@pytest.mark.parametrize("role", [None, ProjectRole.user, ProjectRole.manager])
@pytest.mark.parametrize("verb", ["list", "get", "create_or_update", "delete"])
def test_only_admins_of_the_project_manage_secrets(rig: Rig, role: ProjectRole | None, verb: str) -> None:
    token = rig.user("ann", role)
    body = {"name": "tok", "value": "v", "secrets_names": ["tok"]}
    assert rig.call(f"/api/project/main/secrets/{verb}", body, token=token).status == 403


def test_another_projects_secret_is_out_of_reach(rig: Rig) -> None:
    set_(rig)
    rig.another_project("other")
    assert rig.ok("/api/project/other/secrets/list") == []
    assert "'tok'" in rig.refused("/api/project/other/secrets/get", {"name": "tok"})


def test_the_value_is_nowhere_at_rest_and_in_no_event(rig: Rig) -> None:
    set_(rig)
    rig.world.clock.pass_(1)
    set_(rig, value=VALUE + "2")
    stored = b"".join(path.read_bytes() for path in rig.world.folder.rglob("*") if path.is_file())
    assert VALUE.encode() not in stored
    events = rig.ok("/api/events/list", {"include_target_types": ["secret"]})
    assert [event["message"] for event in events] == ["changed", "set"]
    assert events[0]["actor_user"] == "admin" and VALUE not in repr(events)


@pytest.mark.parametrize("body", [{"name": "tok", "value": "a\0b"}, {"name": "tok", "value": "v", "\0": [["\0"]]}])
def test_a_nul_character_is_refused_wherever_it_is(rig: Rig, body: dict) -> None:
    assert "NUL character (`\\u0000`), which isn't allowed. Remove it." in rig.refused(
        "P/secrets/create_or_update", body
    )
    assert set_(rig, value=r"\u0000")["value"] == r"\u0000"
