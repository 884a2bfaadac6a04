"""`dstack apply` of a service: its plan by groups, its addresses, and the effect of a change on its replicas."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib import contract
from cli.tables.plans import cost_line
from cli.tables.services import replicas_of, scaling_note
from tests.cli.conftest import Dstack
from tests.cli.plane import Plane, offer, run
from tests.harness.whole import whole

ONE = "type: service\nname: chat\nport: 8000\nmodel: my-org/tiny\ncommands: [serve]\n"
GROUPS = """type: service
name: chat
port: 8000
groups:
  - {name: big, replicas: 2, commands: [serve big]}
  - {replicas: 1..3, commands: [serve small], scaling: {metric: rps, target: 1}}
"""
SERVICE = {
    "url": "/proxy/services/main/chat/",
    "model": {"name": "my-org/tiny", "base_url": "/proxy/services/main/chat/v1", "type": "chat"},
    "options": {},
    "scales": [{"group": "0", "desired": 1, "why": None, "wanted": None, "stale": False}],
}


def part(group: str, count: int, price: float, offers: int = 1) -> dict[str, Any]:
    spec = {"requirements": {"resources": {}, "spot": False}, "service_port": 8000, "replica_group": group}
    found = [offer(price=price)] * offers
    return {"job_spec": spec, "offers": found, "total_offers": offers, "max_price": price, "count": count}


def planned(*parts: dict[str, Any], current: Any = None, **more: Any) -> Any:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        spec = body["run_spec"]
        plan = {"project_name": "main", "user": "admin", "run_spec": spec, "effective_run_spec": spec}
        return {**plan, "job_plans": list(parts), "current_resource": current, "action": "create", **more}

    return answer


@pytest.fixture
def chat(plane: Plane, dstack: Dstack) -> Dstack:
    (dstack.terminal.cwd / "chat.yml").write_text(ONE)
    (dstack.terminal.cwd / "groups.yml").write_text(GROUPS)
    plane.answers.update(
        {
            "/repos/init": None,
            "/runs/get_plan": planned(part("0", 1, 0.1)),
            "/runs/apply": run("chat", "submitted", service=SERVICE),
        }
    )
    return dstack


def shown(dstack: Dstack, *args: str) -> str:
    text, status = dstack.together(*args)
    assert status == 0, text
    return text


def test_a_detached_service_says_where_it_and_its_model_are(plane: Plane, chat: Dstack) -> None:
    out = shown(chat, "apply", "-f", "chat.yml", "-y", "-d")
    assert f"Service chat is at {plane.url}/proxy/services/main/chat/\n" in out
    assert f"Model my-org/tiny is at {plane.url}/proxy/services/main/chat/v1\n" in out


def test_a_gateways_address_is_whole_already(plane: Plane, chat: Dstack) -> None:
    there = {**SERVICE, "url": "https://chat.example.com/", "model": None}
    plane.answers["/runs/apply"] = run("chat", "submitted", service=there)
    assert "Service chat is at https://chat.example.com/\n" in shown(chat, "apply", "-f", "chat.yml", "-y", "-d")


def test_a_service_that_is_looked_at_says_where_it_and_its_model_are(plane: Plane, chat: Dstack) -> None:
    there = {**SERVICE, "url": "https://chat.example.com/"}
    plane.answers["/runs/get"] = run("chat", service=there)
    rows = [line.split() for line in shown(chat, "run", "get", "chat").splitlines()]
    assert ["Service", "https://chat.example.com/"] in rows
    assert ["Model", f"{plane.url}/proxy/services/main/chat/v1"] in rows


def test_each_group_has_its_offers_and_the_cost_is_that_of_all(plane: Plane, chat: Dstack) -> None:
    plane.answers["/runs/get_plan"] = planned(part("big", 2, 1.5), part("1", 1, 0.25))
    out = shown(chat, "apply", "-f", "groups.yml", "-y", "-d")
    assert "service (groups=2, replicas=3..5)" in out
    assert out.index("Group big, 2 at first:") < out.index("$1.5") < out.index("Group 1, 1 at first:")
    assert "Cost: $3.25 an hour on the first offer." in out


def test_a_group_without_offers_is_named_and_no_cost_is_promised(plane: Plane, chat: Dstack) -> None:
    notes = [{"subject": "fleet `gpus`", "text": "is full", "hint": ""}]
    parts = part("big", 2, 1.5, offers=0), part("1", 1, 0.25)
    plane.answers["/runs/get_plan"] = planned(*parts, notes=notes)
    out = shown(chat, "apply", "-f", "groups.yml", "-y", "-d")
    assert "Group big: no offers now" in out and "Cost" not in out
    assert "fleet `gpus` is full" in out


@pytest.mark.parametrize(
    ("replaces", "note"),
    [([], "No replica is replaced."), (["0"], "Its replicas are replaced, one after the other.")],
    ids=["none", "all"],
)
def test_a_change_in_place_says_what_it_means(plane: Plane, chat: Dstack, replaces: list[str], note: str) -> None:
    spec = {"type": "service", "name": "chat", "port": {"local_port": 80, "container_port": 7}, "commands": ["old"]}
    current = run("chat", "running", run_spec={"run_name": "chat", "configuration": spec}, service=SERVICE)
    answer = planned(part("0", 1, 0.1), current=current, action="update", replaces=replaces)
    plane.answers["/runs/get_plan"] = answer
    out = shown(chat, "apply", "-f", "chat.yml", "-y", "-d")
    assert note in out and "Run chat is changed." in out


def test_the_groups_that_are_replaced_are_named(plane: Plane, chat: Dstack) -> None:
    current = run("chat", "running", service=SERVICE)
    parts = part("big", 2, 1.5), part("1", 1, 0.25)
    answer = planned(*parts, current=current, action="update", replaces=["big"])
    plane.answers["/runs/get_plan"] = answer
    assert "Its replicas of group big are replaced" in shown(chat, "apply", "-f", "groups.yml", "-y", "-d")


@pytest.mark.parametrize(
    ("before", "note"),
    [
        ({"groups": [{"name": "big"}, {}]}, "No replica is replaced."),
        (
            {"groups": [{"name": "big"}, {}, {"name": "old"}]},
            "No replica is replaced. Those of group old go once the others can take their requests.",
        ),
        ({"replicas": [{"name": "a"}, {}]}, "Those of group a go once"),
        ({"replicas": 3}, "Those of group 0 go once"),
    ],
    ids=["none", "one", "in-the-older-form", "the-only-one"],
)
def test_groups_that_go_are_named(plane: Plane, chat: Dstack, before: dict[str, Any], note: str) -> None:
    spec = {"type": "service", "name": "chat", "port": 8000, **before}
    current = run("chat", "running", run_spec={"run_name": "chat", "configuration": spec}, service=SERVICE)
    parts = part("big", 2, 1.5), part("1", 1, 0.25)
    plane.answers["/runs/get_plan"] = planned(*parts, current=current, action="update", replaces=[])
    out = shown(chat, "apply", "-f", "groups.yml", "-y", "-d")
    assert note in out
    assert ("Those of" in out) is ("Those of" in note)


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        ({"desired": 2, "why": "a request waits"}, ""),
        ({"desired": 3, "why": "a request waits"}, "should have 3 replicas: a request waits"),
        ({"desired": 1, "why": "no requests for 1 min"}, "should have 1 replica: no requests for 1 min"),
        ({"desired": 3, "why": None}, ""),
        ({"desired": 2, "why": "busy: 1 more at noon", "wanted": 3}, "busy: 1 more at noon"),
        ({"desired": 2, "why": "nothing heard", "stale": True}, "nothing heard"),
    ],
    ids=["as-it-should", "too-few", "too-many", "a-fixed-number", "waits", "a-silent-door"],
)
def test_what_is_said_of_how_many_there_should_be(scale: dict[str, Any], reason: str) -> None:
    """Once, and only where it isn't so already."""
    one = whole(contract.Run, {"service": {"scales": [{"group": "0", **scale}]}})
    assert scaling_note(one, {"0": 2}) == reason
    scales = [{"group": "a", **scale}, {"group": "b", "desired": 0, "why": None}]
    several = whole(contract.Run, {"service": {"scales": scales}})
    between = " " if reason.startswith("should") else ": "
    assert scaling_note(several, {"a": 2}) == (f"group a{between}{reason}" if reason else "")


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({}, ""),
        ({"replicas": {"min": 2, "max": 2}}, "replicas=2"),
        ({"replicas": "0..4"}, "replicas=0..4"),
        ({"groups": [{"replicas": 1}]}, "groups=1, replicas=1"),
    ],
    ids=["unset", "fixed", "range", "groups"],
)
def test_how_many_replicas_a_plan_speaks_of(configuration: dict[str, Any], expected: str) -> None:
    assert replicas_of(configuration) == expected


def test_what_costs_nothing_has_no_cost() -> None:
    assert cost_line({"job_plans": [part("0", 0, 1.5)]}) == ""
