"""Configurations that are sent as YAML: the same rules as for JSON, and the line of whatever is wrong."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from chalicelib.api import dispatch
from tests.api.rig import ADMIN, Rig
from tests.api.v1.rest import Client

TASK = """\
# A comment, and a name.
type: task
name: train
commands:
  - echo hello
env:
  A: &one "1"
  B: *one
resources:
  cpu: 1..
"""


def sent(rig: Rig, text: str, *, media: str = "application/yaml", query: dict[str, str] | None = None) -> Any:
    headers = {"authorization": f"Bearer {ADMIN}", "content-type": media}
    request = dispatch.Request("POST", Client.of(rig).runs, query or {}, headers, text.encode())
    reply = dispatch.answer(rig.world.plane, request)
    return reply.status, orjson.loads(reply.body)


@pytest.mark.parametrize("media", ["application/yaml", "text/yaml; charset=utf-8", "Application/X-YAML"])
def test_a_run_is_submitted_as_it_is_written(rig: Rig, media: str) -> None:
    status, run = sent(rig, TASK, media=media)
    assert (status, run["name"], run["spec"]["env"]) == (201, "train", {"A": "1", "B": "1"})


def test_a_plan_is_made_of_it(rig: Rig) -> None:
    status, plan = sent(rig, TASK, query={"dry_run": "true"})
    assert (status, plan["action"], plan["name"]) == (200, "create", "train")


@pytest.mark.parametrize(
    ("wrong", "line", "pointer", "code"),
    [
        ("type: task\ncommands: [a\n", 2, "", "yaml-syntax"),
        ("type: task\n\ncomands: [a]\n", 3, "/comands", "unknown-key"),
        ("type: tusk\n", 1, "/type", "unknown-value"),
        ("type: task\ncommands: [a]\nresources:\n  gpu: -1\n", 4, "/resources/gpu/count", "invalid-range"),
        ("type: task\ncommands: [a]\nenv:\n  V: 1.10\n", 4, "/env/V", "ambiguous-number"),
        ("- a\n", 1, "", "wrong-type"),
        ("\tx: 1\n", 1, "", "yaml-syntax"),
    ],
)
def test_what_is_wrong_has_its_line(rig: Rig, wrong: str, line: int, pointer: str, code: str) -> None:
    status, problem = sent(rig, wrong)
    first = problem["errors"][0]
    assert (status, first["line"], first["pointer"], first["code"]) == (422, line, pointer, code), problem


def test_so_has_what_is_found_out_later(rig: Rig) -> None:
    """What only the control plane knows: an unknown volume, for instance, or a value that it doesn't have."""
    status, problem = sent(rig, TASK.replace('&one "1"', "&one (hidden)"))
    assert status == 422 and [(each["pointer"], each["line"]) for each in problem["errors"]] == [
        ("/env/A", 7),
        ("/env/B", 8),
    ], problem


def test_other_bodies_are_json(rig: Rig) -> None:
    headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/yaml"}
    path = f"/api/v1/projects/{rig.project.name}/quota"
    reply = dispatch.answer(rig.world.plane, dispatch.Request("PUT", path, {}, headers, b"gpus: 1\n"))
    assert reply.status == 422 and b"JSON" in reply.body


def test_a_query_is_no_part_of_it(rig: Rig) -> None:
    status, problem = sent(rig, TASK, query={"colour": "red"})
    assert status == 422 and problem["errors"][0]["parameter"] == "colour" and "line" not in problem["errors"][0]
