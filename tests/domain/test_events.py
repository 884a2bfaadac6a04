"""Events: data that makes its own sentence, and a history that stays readable."""

from __future__ import annotations

import orjson
import pytest

from chalicelib.domain.events import Event, EventType, Target, Trade
from chalicelib.domain.instants import HOUR
from chalicelib.domain.jobs import Assignment, JobStatus
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.kernel.transitions import Draft
from tests.world import nouns as b

JOB, RUN = Target(type="job", id="j", name="train-0-0"), Target(type="run", id="r", name="train")
TRADE = Trade(act="bought", price=2.2, backend="aws", region="eu-1", type="g5", cpus=8, memory_mib=1024)


def _assignment(offer: Offer) -> Assignment:
    return Assignment(
        instance_id="i", instance_name="f-0", fleet_id="f", fleet_name="f", offer=offer, assigned_at=b.NOW
    )


def event(type: EventType, *targets: Target, **data: object) -> Event:
    return Event(id="e", project_id="p", at=1, type=type, targets=targets or (JOB,), **data)  # type: ignore[arg-type]


def test_an_event_from_before_there_was_data_is_read_as_it_was_written() -> None:
    stored = orjson.dumps({"id": "e", "project_id": "p", "at": 1, "message": "made, waits", "targets": []})
    old = Event.model_validate_json(stored)
    assert (old.message, old.type) == ("made, waits", None)
    assert Event.model_validate_json(old.model_dump_json()).message == "made, waits"


def test_every_type_makes_a_sentence() -> None:
    for type in EventType:
        sentence = event(type, before="idle", after="busy", fields=("priority",), detail="why", trade=TRADE).message
        assert sentence and "None" not in sentence.replace("None: why", "").replace("attempt None", ""), type


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (event(EventType.status, before="a", after="b"), "a → b"),
        (
            event(EventType.status, before="a", after="terminating", reason="idle_timeout"),
            "a → terminating: idle timeout",
        ),
        (event(EventType.status, before="a", after="done", reason="done_by_runner"), "a → done"),
        (event(EventType.status, RUN, before="a", after="done", reason="all_jobs_done"), "a → done: all jobs done"),
        (event(EventType.created), "created; waiting for capacity"),
        (event(EventType.created, RUN), "submitted"),
        (event(EventType.changed, fields=("max_price", "nodes")), "changed: max price, nodes"),
        (event(EventType.ordered, RUN, JOB, trade=TRADE), "ordered for train-0-0: g5 from aws"),
        (event(EventType.resubmitted, number=3), "resubmitted, attempt 3"),
    ],
)
def test_sentences(given: Event, sentence: str) -> None:
    assert given.message == sentence


def test_what_a_place_costs_is_in_the_events_alone() -> None:
    """Taken when the job is placed, given back when it has ended: the ledger needs nothing else."""
    run = b.run("train")
    offer = b.offer(price=1.5)
    instance = b.host(0, b.fleet("f")).with_(offer=offer)
    draft = Draft(b.NOW)
    placed = draft.move_job(b.job(run), "provision", instance, assignment=_assignment(instance.offer))
    taken = draft.step().events[-1]
    draft = Draft(b.NOW + 2 * HOUR)
    draft.finish_job(draft.end_job(placed, JobReason.done_by_runner), None)
    ending, returned = draft.step().events
    assert taken.trade is not None and returned.trade is not None and ending.trade is None
    assert (taken.trade.act, returned.trade.act, returned.after) == ("taken", "returned", JobStatus.done)
    assert taken.trade.price * (returned.at - taken.at) / HOUR == pytest.approx(3.0)
