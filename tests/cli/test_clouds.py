"""Volumes and gateways: what apply asks, sends and says, against answers of a control plane that has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Dstack
from tests.cli.plane import NOT_THERE, Plane, steps

VOLUME = "type: volume\nname: data\nbackend: aws\nregion: us-east-1\nsize: 100GB\n"
GATEWAY = "type: gateway\nname: door\nbackend: aws\nregion: us-east-1\ndomain: example.com\n"
REFUSED = (400, {"detail": [{"msg": "volumes aren't supported", "code": "error"}]})


def made(name: str, status: str, configuration: Any = None, message: str = "") -> dict[str, Any]:
    return {"name": name, "status": status, "status_message": message, "configuration": configuration}


def write(dstack: Dstack, text: str) -> None:
    (dstack.terminal.cwd / ".dstack.yml").write_text(text, encoding="utf-8")


def test_a_volume_is_created_and_waited_for(dstack: Dstack, plane: Plane) -> None:
    write(dstack, VOLUME)
    plane.answers |= {
        "/volumes/get": steps(NOT_THERE, made("data", "provisioning"), made("data", "active")),
        "/volumes/create": made("data", "submitted"),
    }
    ended = dstack("apply", answers="y\n")
    assert ended.code == 0, ended
    assert "Set up the volume data?" in ended.out and "Volume data is active." in ended.out
    (sent,) = plane.bodies("/volumes/create")
    assert sent["configuration"]["size"] == 100.0
    assert dstack.naps == [2.0, 2.0]


def test_a_servers_refusal_is_what_is_said(dstack: Dstack, plane: Plane) -> None:
    write(dstack, VOLUME)
    plane.answers["/volumes/get"] = REFUSED
    ended = dstack("apply", "-y")
    assert (ended.code, ended.out, ended.err) == (1, "", "volumes aren't supported\n")


def test_a_volume_that_is_as_described_is_left_alone_unless_forced(dstack: Dstack, plane: Plane) -> None:
    write(dstack, VOLUME)
    plane.answers |= {"/volumes/get": NOT_THERE, "/volumes/create": made("data", "active")}
    dstack("apply", "-y")
    (sent,) = plane.bodies("/volumes/create")
    there = made("data", "active", sent["configuration"])
    plane.answers["/volumes/get"] = there
    assert "is up to date" in dstack("apply", "-y").out
    assert len(plane.bodies("/volumes/create")) == 1
    plane.answers |= {"/volumes/get": steps(there, there, NOT_THERE), "/volumes/delete": None}
    assert dstack("apply", "-y", "--force").code == 0
    assert plane.bodies("/volumes/delete") == [{"names": ["data"]}]
    assert len(plane.bodies("/volumes/create")) == 2


def test_answering_no_creates_nothing(dstack: Dstack, plane: Plane) -> None:
    write(dstack, VOLUME)
    plane.answers["/volumes/get"] = NOT_THERE
    ended = dstack("apply", answers="n\n")
    assert ended.code == 0 and "Nothing was changed." in ended.out


def gateway_plan(action: str, current: Any = None) -> Any:
    return lambda body: {"spec": body["spec"], "current_resource": current, "action": action}


def test_a_gateway_that_fails_says_why(dstack: Dstack, plane: Plane) -> None:
    write(dstack, GATEWAY)
    plane.answers |= {
        "/gateways/get_plan": gateway_plan("create"),
        "/gateways/apply": made("door", "submitted"),
        "/gateways/get": made("door", "failed", message="no quota"),
    }
    ended = dstack("apply", "-y")
    assert ended.code == 1 and "Gateway door is failed: no quota." in ended.out
    (sent,) = plane.bodies("/gateways/apply")
    assert sent["plan"]["spec"]["configuration"]["domain"] == "example.com" and sent["force"] is False


@pytest.mark.parametrize(("action", "deletes", "question"), [("update", 0, "Change"), ("create", 1, "Delete")])
def test_a_gateway_that_is_there(dstack: Dstack, plane: Plane, action: str, deletes: int, question: str) -> None:
    write(dstack, GATEWAY)
    current = made("door", "running", {"type": "gateway", "name": "door", "backend": "gcp"})
    plane.answers |= {
        "/gateways/get_plan": gateway_plan(action, current),
        "/gateways/apply": made("door", "running"),
        "/gateways/delete": None,
        "/gateways/get": NOT_THERE,
    }
    ended = dstack("apply", answers="y\n")
    assert ended.code == 0 and f"{question} the gateway door" in ended.out, ended
    assert len(plane.bodies("/gateways/delete")) == deletes
    (sent,) = plane.bodies("/gateways/apply")
    assert (sent["plan"]["current_resource"] is None) == bool(deletes)
