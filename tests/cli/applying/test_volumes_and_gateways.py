"""Volumes and gateways: what apply asks, sends and says, against answers of a control plane that has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Dstack
from tests.cli.plane import NOT_THERE, VOLUME_ID, Plane, gateway, steps, volume

VOLUME = "type: volume\nname: data\nbackend: aws\nregion: us-east-1\nsize: 100GB\n"
GATEWAY = "type: gateway\nname: door\nbackend: aws\nregion: us-east-1\ndomain: example.com\n"
REFUSED = (400, {"detail": [{"msg": "volumes aren't supported", "code": "error"}]})


def made(name: str, status: str, configuration: Any = None, message: str = "") -> dict[str, Any]:
    fields = {"status_message": message, "configuration": configuration or {}}
    return {"name": name, "status": status, **fields}


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


def test_volumes_are_listed_shown_and_deleted(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {
        "/volumes/list": [volume()],
        "/volumes/get": lambda body: volume(body["name"], external=body["name"] == "shared"),
        "/volumes/delete": None,
    }
    assert "aws (us-east-1)" in dstack("volume").out
    assert json.loads(dstack("volume", "list", "--json").out)["volumes"][0]["name"] == "data"
    assert json.loads(dstack("volume", "get", "data", "--json").out) == volume()
    ended = dstack("volume", "delete", "data", answers="n\n")
    assert "Delete volume data and all its data?" in ended.out and "Nothing was deleted." in ended.out
    assert plane.bodies("/volumes/delete") == []
    assert dstack("volume", "delete", "data", "-y").out == "Deleting volume data and all its data.\n"
    assert dstack("volume", "delete", "shared", "-y").out == "Deleting volume shared.\n"
    assert plane.bodies("/volumes/delete") == [{"names": ["data"]}, {"names": ["shared"]}]


def test_without_volumes_the_list_says_how_to_get_one(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/volumes/list"] = []
    assert "No volumes yet." in dstack("volume").err


@pytest.mark.parametrize("args", [("get", "nope"), ("delete", "nope", "-y")])
def test_a_volume_that_isnt_there_is_named(dstack: Dstack, plane: Plane, args: tuple[str, ...]) -> None:
    plane.answers["/volumes/get"] = NOT_THERE
    ended = dstack("volume", *args)
    assert ended.code == 1 and "There is no volume nope in project main." in ended.err


def test_a_file_deletes_its_volume_and_waits_until_it_is_gone(dstack: Dstack, plane: Plane) -> None:
    write(dstack, VOLUME)
    plane.answers |= {"/volumes/get": steps(volume(), volume(), NOT_THERE), "/volumes/delete": None}
    ended = dstack("delete", "-y")
    assert ended.code == 0 and "Deleted the volume data." in ended.out
    assert plane.bodies("/volumes/delete") == [{"names": ["data"]}]


def test_its_events_are_asked_for_by_its_id(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/volumes/get": volume(), "/api/events/list": []}
    assert dstack("event", "--target-volume", "data").code == 0
    assert plane.bodies("/api/events/list")[0]["target_volumes"] == [VOLUME_ID]


def test_answering_no_creates_nothing(dstack: Dstack, plane: Plane) -> None:
    write(dstack, VOLUME)
    plane.answers["/volumes/get"] = NOT_THERE
    ended = dstack("apply", answers="n\n")
    assert ended.code == 0 and "Nothing was changed." in ended.out


def gateway_plan(action: str, current: Any = None, changes: tuple[str, ...] = ("domain",), **more: Any) -> Any:
    fields = {"current_resource": current, "action": action, "changes": list(changes), **more}
    return lambda body: {"spec": body["spec"], **fields}


def test_a_gateway_that_fails_says_why(dstack: Dstack, plane: Plane) -> None:
    write(dstack, GATEWAY)
    plane.answers |= {
        "/gateways/get_plan": gateway_plan("create"),
        "/gateways/apply": made("door", "submitted"),
        "/gateways/get": made("door", "failed", message="There is no quota."),
    }
    ended = dstack("apply", "-y")
    assert ended.code == 1 and "Gateway door failed: There is no quota.\n" in ended.out
    (sent,) = plane.bodies("/gateways/apply")
    assert sent["plan"]["spec"]["configuration"]["domain"] == "example.com" and sent["force"] is False


def test_what_a_gateway_waits_for_is_said_once(dstack: Dstack, plane: Plane) -> None:
    write(dstack, GATEWAY)
    waits = made("door", "submitted", message="waiting for a host")
    plane.answers |= {
        "/gateways/get_plan": gateway_plan("create"),
        "/gateways/apply": made("door", "submitted"),
        "/gateways/get": steps(waits, waits, made("door", "running")),
    }
    ended = dstack("apply", "-y")
    assert ended.code == 0 and ended.out.endswith("Gateway door is running.\n")
    assert ended.err.splitlines() == ["door: waiting for a host"]


def test_how_much_of_a_gateway_runs_is_said(dstack: Dstack, plane: Plane) -> None:
    write(dstack, GATEWAY + "replicas: 2\n")
    part = gateway("door", configuration={"type": "gateway", "replicas": 2})
    plane.answers |= {"/gateways/get_plan": gateway_plan("create"), "/gateways/apply": part}
    assert dstack("apply", "-y").out.endswith("Gateway door is running with 1 of 2 replicas.\n")


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


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "http_port: 8080\nhttps_port: 8443\n",
            ("HTTP port      8080", "HTTPS port     8443", "Certificate    lets-encrypt"),
        ),
        ("certificate: null\n", ("Certificate    none",)),
        (
            "certificate: {type: given, certificate: '${{ secrets.C }}', key: '${{ secrets.K }}'}\n",
            ("Certificate    given",),
        ),
    ],
)
def test_its_ports_and_certificate_are_shown_before_it_is_agreed_to(
    dstack: Dstack, plane: Plane, lines: str, expected: tuple[str, ...]
) -> None:
    write(dstack, GATEWAY.replace("backend: aws\nregion: us-east-1", "fleet: lab") + lines)
    plane.answers["/gateways/get_plan"] = gateway_plan("create")
    ended = dstack("apply", answers="n\n")
    assert ended.code == 0 and all(each in ended.out for each in expected), ended
    assert "secrets.K" not in ended.out


def test_what_else_there_is_to_say_of_a_gateway_is_said_before_it_is_agreed_to(dstack: Dstack, plane: Plane) -> None:
    write(dstack, GATEWAY)
    plane.answers["/gateways/get_plan"] = gateway_plan("create", remarks=["No tokens from elsewhere."])
    assert "No tokens from elsewhere.\n" in dstack("apply", answers="n\n").out
    plane.answers["/gateways/apply"] = made("door", "running")
    shown = dstack("apply", "-y", "-d", "--json").out
    assert json.loads(shown)["name"] == "door" and "No tokens" not in shown


@pytest.mark.parametrize("flags", [(), ("-y",)])
def test_a_gateway_that_is_as_its_file_says_is_left_alone(dstack: Dstack, plane: Plane, flags: tuple[str, ...]) -> None:
    """Nobody is asked about it. It is applied, so that the server tries certificates that failed."""
    write(dstack, GATEWAY)
    current = made("door", "running", {"type": "gateway", "name": "door", "backend": "aws"})
    plane.answers |= {"/gateways/get_plan": gateway_plan("update", current, ()), "/gateways/apply": current}
    ended = dstack("apply", *flags)
    assert ended.code == 0 and ended.out.endswith("Gateway door is up to date.\n"), ended
    assert len(plane.bodies("/gateways/apply")) == 1 and plane.bodies("/gateways/delete") == []


@pytest.mark.parametrize("again", [None, "2026-11-21T05:20:00Z"])
def test_a_certificate_that_failed_says_what_to_do(dstack: Dstack, plane: Plane, again: str | None) -> None:
    failed = {"host": "chat.example.com", "state": "failed", "until": None, "message": "no address"}
    plane.answers["/gateways/get"] = gateway(certificates=[{**failed, "next_attempt_at": again}])
    ended = dstack("gateway", "get", "door")
    assert "chat.example.com  failed" in ended.out and "no address" in ended.out
    assert ("apply the gateway's file again" in ended.err) == (again is not None)
