"""`dstack automation` and `dstack event follow`, against a plane of scripted answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.plane import Plane

TASK = "type: task\nname: train\ncommands: [ls]\nresources: {cpu: 1.., memory: 1GB.., disk: 1GB..}\n"


def write(here: Dstack, name: str, text: str) -> None:
    (here.terminal.cwd / name).write_text(text)


def following(dstack: Dstack, naps: int) -> Any:
    patient = Dstack(replace(dstack.terminal, sleep=interrupt_at(naps)), [])
    return patient("event", "follow", "--since", "2026-11-21T05:00:00Z")


def change(number: int, at: str) -> dict[str, Any]:
    return {"id": str(number), "time": f"2026-11-21T05:00:{at}+00:00", "message": f"change {number}"}


def test_following_prints_each_change_once_and_those_that_come_late(dstack: Dstack, plane: Plane) -> None:
    pages = [
        [change(1, "01.5")],
        [change(1, "01.5"), change(3, "03")],
        [change(1, "01.5"), change(2, "02"), change(3, "03")],
    ]
    bodies: list[dict[str, Any]] = []

    def page(body: dict[str, Any]) -> list[dict[str, Any]]:
        bodies.append(body)
        return pages[min(len(bodies), len(pages)) - 1]

    plane.answers["/events/changes"] = page
    ended = following(dstack, 4)
    assert ended.code == 0
    assert [json.loads(line)["id"] for line in ended.out.splitlines()] == ["1", "3", "2"]
    assert bodies[0]["prev_recorded_at"].startswith("2026-11-21T05:00:00"), "nothing from before the start"


def test_a_full_page_is_followed_by_the_next_at_once(dstack: Dstack, plane: Plane) -> None:
    first = [change(n, f"01.{n:03d}") for n in range(100)]

    def page(body: dict[str, Any]) -> list[dict[str, Any]]:
        return [change(100, "02")] if body["prev_id"] == "99" else first

    plane.answers["/events/changes"] = page
    ended = following(dstack, 1)
    assert len(ended.out.splitlines()) == 101


def test_what_needs_an_upload_isnt_stored(dstack: Dstack, plane: Plane) -> None:
    write(dstack, "data.txt", "1")
    write(dstack, ".dstack.yml", f"{TASK}files: [data.txt]\n")
    ended = dstack("automation", "add")
    assert ended.code == 1 and "isn't kept for rules" in ended.err and not plane.bodies("/automations/add")


def test_a_run_a_fleet_and_a_volume_are_stored_as_they_would_be_applied(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/repos/init": None, "/automations/add": lambda body: body["spec"]["configuration"]}
    write(dstack, "task.yml", TASK)
    write(dstack, "fleet.yml", "type: fleet\nname: cloud\nnodes: 0..1\n")
    write(dstack, "volume.yml", "type: volume\nname: data\nbackend: aws\nregion: r\nsize: 1GB\n")
    outputs = [dstack("automation", "add", "-f", f"{name}.yml").out for name in ("task", "fleet", "volume")]
    assert [line.split()[1] for line in outputs] == ["train", "cloud", "data"]
    task, fleet, volume = (body["spec"] for body in plane.bodies("/automations/add"))
    assert task["run_name"] == "train" and task["repo_id"] == "none" and task["configuration"]["type"] == "task"
    assert fleet["configuration"]["name"] == "cloud" and volume["configuration"]["backend"] == "aws"


def test_deleting_asks_first(dstack: Dstack, plane: Plane) -> None:
    plane.answers |= {"/automations/delete": None, "/automations/list": [{"name": "train"}]}
    assert "No configuration other is stored" in dstack("automation", "delete", "other", "-y").err
    assert "Nothing was deleted" in dstack("automation", "delete", "train", answers="n\n").out
    assert not plane.bodies("/automations/delete")
    assert "is deleted" in dstack("automation", "delete", "train", "-y").out
    assert plane.bodies("/automations/delete") == [{"names": ["train"]}]


def test_its_events_are_found_by_its_name(dstack: Dstack, plane: Plane) -> None:
    plane.answers["/automations/list"] = [{"name": "train", "id": "7", "type": "task"}]
    plane.answers["/api/events/list"] = []
    assert dstack("event", "--target-automation", "train").code == 0
    (request,) = [call for call in plane.requests if call.path.endswith("/events/list")]
    assert request.body["target_automations"] == ["7"] and request.body["within_projects"] is None
    ended = dstack("event", "--target-automation", "trian")
    assert ended.code == 1 and "No configuration trian is stored" in ended.err
    assert dstack("event", "--target-automation", "train", "--target-run", "x").code == 2
