"""With `--json` there is one JSON document on standard output, whatever happens: the result, or the error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.applying.test_flags import ANSWERS, LINES, active, fleet_plan
from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.plane import NOT_THERE, Plane, fleet, gateway, run, volume
from tests.cli.presets.samples import fill
from tests.cli.test_help import LEAVES

TASK = "type: task\nname: train\ncommands: [ls]\n"
PRINTING = [path for path, command in LEAVES.items() if any("--json" in p.opts for p in command.params)]
LOCAL = (("project", "list"), ("preset", "get"), ("preset", "list"), ("preset",))  # these ask no server
SILENT = [path for path in LEAVES if path not in PRINTING]
FAILURES: dict[str, Any] = {
    "refused": (400, {"detail": [{"msg": "It can't be done. Do that.", "code": "error"}]}),
    "wrong fields": (400, {"detail": [{"msg": "a: wrong\nb: wrong", "code": "error", "fields": ["a", "b"]}]}),
    "not found": (400, {"detail": [{"msg": "There is none.", "code": "resource_not_exists"}]}),
    "forbidden": (403, {"detail": "no"}),
    "no such project": (404, {"detail": "Not found"}),
    "not valid": (422, {"detail": [{"loc": ["body", "a"], "msg": "wrong", "type": "x"}]}),
    "too large": (413, {"detail": "too large"}),
    "broken": (500, {"detail": "broken"}),
    "no control plane": (200, b"<html>"),
}


def args_of(path: tuple[str, ...]) -> list[str]:
    line = LINES.get(" ".join(path), " ".join(path))
    return [*line.split(), *(["-y"] if path == ("apply",) else []), "--json"]


def is_error(document: Any) -> bool:
    return list(document) == ["shape", "error"]


def error_in(ended: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.out)
    assert is_error(found) and ended.code == found["error"]["exit_code"] != 0, ended
    assert found["error"]["message"] and ended.err and "Traceback" not in ended.err, ended
    return found["error"]  # type: ignore[no-any-return]


@pytest.fixture
def used(dstack: Dstack, plane: Plane) -> Dstack:
    """In a folder with a configuration, and with a server that knows what there is."""
    (dstack.terminal.cwd / ".dstack.yml").write_text(TASK)
    plane.answers |= ANSWERS
    fill(dstack.terminal.home)
    return dstack


@pytest.mark.parametrize("path", PRINTING, ids=" ".join)
def test_a_command_prints_one_document(used: Dstack, path: tuple[str, ...]) -> None:
    ended = used(*args_of(path))
    assert ended.code == 0 and not is_error(json.loads(ended.out)), ended


@pytest.mark.parametrize("path", [path for path in PRINTING if path not in LOCAL], ids=" ".join)
def test_every_refusal_is_a_document(used: Dstack, plane: Plane, path: tuple[str, ...]) -> None:
    for failure in FAILURES.values():
        plane.answers = {key: failure for key in plane.answers}
        ended = used(*args_of(path))
        if path == ("backend", "check") and not is_error(json.loads(ended.out)):  # what it is asked for
            assert json.loads(ended.out)["backends"][0]["error"] and ended.code == 1
        else:
            assert error_in(ended)


@pytest.mark.parametrize("path", PRINTING, ids=" ".join)
def test_so_is_a_command_line_that_is_wrong(bare: Dstack, path: tuple[str, ...]) -> None:
    assert error_in(bare(*args_of(path), "--nope"))["message"].startswith("No such option: --nope")
    if path not in LOCAL:
        assert "No project is set up" in error_in(bare(*args_of(path)))["message"] or path == ("apply",)


@pytest.mark.parametrize("path", SILENT, ids=" ".join)
def test_and_a_command_that_has_no_json(bare: Dstack, path: tuple[str, ...]) -> None:
    assert error_in(bare(*LINES.get(" ".join(path), " ".join(path)).split(), "--json"))


def test_a_command_that_is_interrupted(used: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get_plan"] = lambda body: {**active(body), "current_resource": run("train")}
    error = error_in_without_text(used("apply", "-y", "--json", "--force", sleep=interrupt_at(1)))
    assert error == {"message": "Interrupted.", "hint": "", "exit_code": 130, "problems": []}


def error_in_without_text(ended: Any) -> Any:
    return json.loads(ended.out)["error"]


def test_an_error_has_its_places_and_its_hint(used: Dstack) -> None:
    (used.terminal.cwd / ".dstack.yml").write_text("type: task\nname: Train\ncomands: [ls]\n")
    error = error_in(used("apply", "-y", "--json"))
    assert [(p["file"], p["line"], p["column"], p["field"]) for p in error["problems"]] == [
        (".dstack.yml", 2, 1, "name"),
        (".dstack.yml", 3, 1, "comands"),
    ]
    assert error["problems"][1]["hint"] == "did you mean `commands`?"
    assert "dstack apply" not in error_in(used("run", "get", "--json"))["message"]


def test_questions_are_refused_in_json_too(used: Dstack) -> None:
    assert "--json needs -y" in error_in(used("apply", "--json"))["message"]
    assert "contradict" in error_in(used("ps", "--json", "--watch"))["message"]
    assert "contradict" in error_in(used("ps", "--format", "json", "--watch"))["message"]


def test_what_follows_two_dashes_is_the_jobs(used: Dstack) -> None:
    ended = used("apply", "--nope", "--", "--json")
    assert ended.code == 2 and not ended.out


# --- nothing to do, or something to replace ------------------------------

FLEET = "type: fleet\nname: gpu\nnodes: 0..1\n"
VOLUME = "type: volume\nname: data\nbackend: aws\nregion: eu-west-1\nsize: 100GB\n"


def unchanged_fleet(body: dict[str, Any]) -> dict[str, Any]:
    return {**fleet_plan(body), "current_resource": fleet("gpu") | {"spec": body["spec"]}}


def test_an_unchanged_run_is_the_document(used: Dstack, plane: Plane) -> None:
    plane.answers["/runs/get_plan"] = active
    ended = used("apply", "-y", "--json")
    assert json.loads(ended.out)["run_spec"]["run_name"] == "train" and ended.code == 0
    assert not plane.bodies("/runs/apply") and not ended.err


def test_an_unchanged_fleet_is_the_document(used: Dstack, plane: Plane) -> None:
    (used.terminal.cwd / "fleet.yml").write_text(FLEET)
    plane.answers["/fleets/get_plan"] = unchanged_fleet
    ended = used("apply", "-f", "fleet.yml", "-y", "--json")
    assert json.loads(ended.out)["name"] == "gpu" and ended.code == 0 and not plane.bodies("/fleets/apply")


def test_a_changed_fleet_is_the_document(used: Dstack, plane: Plane) -> None:
    (used.terminal.cwd / "fleet.yml").write_text(FLEET)
    ended = used("apply", "-f", "fleet.yml", "-y", "--json")
    assert json.loads(ended.out)["name"] == "gpu" and ended.code == 0 and plane.bodies("/fleets/apply")


def test_an_unchanged_volume_is_the_document(used: Dstack, plane: Plane) -> None:
    (used.terminal.cwd / "volume.yml").write_text(VOLUME)
    plane.answers |= {
        "/volumes/get": NOT_THERE,
        "/volumes/create": lambda body: {**volume(), "configuration": body["configuration"]},
    }
    first = used("apply", "-f", "volume.yml", "-y", "--json")
    plane.answers["/volumes/get"] = json.loads(first.out)
    again = used("apply", "-f", "volume.yml", "-y", "--json")
    assert again.out == first.out and again.code == 0 and len(plane.bodies("/volumes/create")) == 1


def test_an_unchanged_gateway_is_the_document(used: Dstack, plane: Plane) -> None:
    (used.terminal.cwd / "gateway.yml").write_text("type: gateway\nname: door\nfleet: gpu\n")
    plan = {"action": "update", "changes": [], "current_resource": gateway()}
    plane.answers["/gateways/get_plan"] = lambda body: {**plan, "spec": body["spec"]}
    plane.answers["/gateways/apply"] = gateway()
    ended = used("apply", "-f", "gateway.yml", "-y", "--json")
    assert json.loads(ended.out)["name"] == "door" and ended.code == 0
