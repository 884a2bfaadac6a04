"""The document that others get of an event, and which of them a rule or a webhook means."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.specs.automation import ChangeFilter, is_of_automation
from chalicelib.domain.state_changes import LONGEST, StateChange, of

RUN = Target(type="run", id="r", name="train")
MACHINE = Target(type="instance", id="i", name="pool-0")
ENDED = Event(
    id="e",
    project_id="p",
    at=1_790_000_000_000_000,
    type=EventType.status,
    before="running",
    after="failed",
    reason="job_failed",
    targets=(RUN, MACHINE),
    run_id="r",
)


def test_a_document_says_what_happened_to_what_why_and_by_whom() -> None:
    document = json.loads(of(ENDED, "main").model_dump_json())
    assert document == {
        "version": 1,
        "id": "e",
        "time": "2026-09-21T14:13:20+00:00",
        "type": "status",
        "project": {"id": "p", "name": "main"},
        "target": {"type": "run", "id": "r", "name": "train"},
        "others": [{"type": "instance", "id": "i", "name": "pool-0"}],
        "before": "running",
        "after": "failed",
        "reason": "job_failed",
        "detail": "",
        "fields": [],
        "message": "running → failed: job failed",
        "actor": None,
        "actor_token": None,
        "run_id": "r",
        "fleet_id": None,
    }
    done = of(
        ENDED.with_(actor_id="u", actor_name="ann", actor_token="ci", type=EventType.changed, fields=("nodes",)), "main"
    )
    assert done.actor is not None and (done.actor.name, done.actor_token) == ("ann", "ci")
    assert done.fields == ("nodes",)


@pytest.mark.parametrize("type", EventType)
def test_every_type_of_event_makes_a_valid_document(type: EventType) -> None:
    from tests.domain.test_events import TRADE

    document = json.loads(of(ENDED.with_(type=type, trade=TRADE), "main").model_dump_json())
    Draft202012Validator(StateChange.model_json_schema()).validate(document)
    assert StateChange.model_validate(document).type == type.value


def test_what_is_old_or_of_no_project_makes_a_document_too_and_none_is_large() -> None:
    old = Event(id="e", project_id="", at=1, words="made", targets=())
    document = of(old, None)
    assert (document.project, document.target.type, document.message) == (None, "project", "made")
    long = of(ENDED.with_(detail="x" * 100_000), "main")
    assert len(long.detail) == LONGEST and len(long.model_dump_json()) < 8_000


@pytest.mark.parametrize(
    ("meant", "fits"),
    [
        ({}, True),
        ({"project": "main", "target": "run", "name": "train", "type": ["status"], "status": ["failed", "done"]}, True),
        ({"reason": ["job_failed"]}, True),
        ({"project": "other"}, False),
        ({"target": "instance"}, False),
        ({"name": "eval"}, False),
        ({"type": ["created"]}, False),
        ({"status": ["done"]}, False),
        ({"reason": ["stopped_by_user"]}, False),
    ],
)
def test_a_change_is_meant_if_all_that_is_asked_fits(meant: dict[str, object], fits: bool) -> None:
    assert ChangeFilter.model_validate(meant).has(of(ENDED, "main")) is fits


def test_what_rules_did_is_told_from_what_made_them_act() -> None:
    rule = Target(type="automation", id="a", name="train")
    assert is_of_automation(of(ENDED.with_(targets=(rule,)), "main")) and not is_of_automation(of(ENDED, "main"))
