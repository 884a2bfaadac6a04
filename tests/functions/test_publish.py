"""State changes on their way to the bus: whole and in order, whatever the bus doesn't take at once."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.fences import Fence, FenceState
from chalicelib.domain.instants import HOUR
from chalicelib.domain.restorations import Restoration
from chalicelib.engine.hold import EventHold
from chalicelib.errors import NotDeployed
from chalicelib.runtime.lambda_ import DETAIL_TYPE, ENTRIES, SOURCE, EventBus
from chalicelib.runtime.root import Root
from chalicelib.store.fences import save
from chalicelib.store.history import events_in
from chalicelib.store.listing import all_of
from chalicelib.store.packing import packed
from chalicelib.store.port import Record
from functions import publish
from infra.functions import named
from tests.api.rig import submit, task
from tests.functions.test_handlers import Stack
from tests.functions.test_policies import deployed, spare
from tests.world.calls import Policed


@dataclass
class Events:
    """EventBridge: takes entries, ten at most, but for those that a test has it refuse."""

    refuses: set[str] = field(default_factory=set)  # ids
    taken: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, service: str) -> Events:
        assert service == "events"
        return self

    def put_events(self, Entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        assert 0 < len(Entries) <= ENTRIES
        answers = []
        for entry in Entries:
            assert (entry["EventBusName"], entry["Source"], entry["DetailType"]) == ("bus", SOURCE, DETAIL_TYPE)
            detail = json.loads(entry["Detail"])
            assert entry["Time"].isoformat() == detail["time"]
            if detail["id"] in self.refuses:
                answers.append({"ErrorCode": "ThrottlingException", "ErrorMessage": "later"})
            else:
                self.taken.append(detail)
                answers.append({"EventId": "x"})
        return {"Entries": answers, "FailedEntryCount": len(self.refuses)}

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.taken]


def image(record: Record) -> dict[str, Any]:
    """An item as the stream has it, and Lambda hands it over."""
    found = {"pk": {"S": record.key.pk}, "sk": {"S": record.key.sk}, "version": {"N": str(record.version)}}
    small = packed(record.body)
    if small is None:
        return {**found, "body": {"S": record.body.decode()}}
    return {**found, "packed": {"B": base64.b64encode(small).decode()}}


def batch(records: Sequence[Record]) -> dict[str, Any]:
    return {
        "Records": [
            {"eventName": "INSERT", "dynamodb": {"SequenceNumber": str(100 + n), "NewImage": image(record)}}
            for n, record in enumerate(records)
        ]
    }


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack.at(tmp_path)
    yield made
    made.root.close()


def history(stack: Stack) -> list[Record]:
    project = stack.rig.project.id
    return list(all_of(stack.root.ports.store, "main", keys.events_of(project)))


def with_bus(stack: Stack, events: Events) -> Root:
    return Root(replace(stack.root.ports, bus=EventBus(events, "bus")))


@pytest.mark.slow
def test_every_event_becomes_one_document_in_order(stack: Stack) -> None:
    stack.submit_run()
    for n in range(8):
        submit(stack.rig, task(f"run-{n}", env={"LONG": "x" * 900}))
    found, events = history(stack), Events()
    assert sum(len(events_in(record)) for record in found) > ENTRIES
    assert publish.handler(batch(found), None, with_bus(stack, events)) == {"batchItemFailures": []}
    listed = stack.rig.ok("/api/events/list", {"ascending": True, "within_projects": [stack.rig.project.id]})
    assert events.ids == [event.id for record in found for event in events_in(record)]
    assert sorted(events.ids) == sorted(one["id"] for one in listed)
    assert {one["project"]["name"] for one in events.taken} == {"main"}
    assert any(one["target"]["name"] == "run-7" and one["type"] == "created" for one in events.taken)


def test_the_batch_comes_again_from_the_first_that_was_not_taken(
    stack: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    stack.submit_run()
    found = history(stack)
    ids = [event.id for record in found for event in events_in(record)]
    events = Events(refuses={events_in(found[3])[-1].id, events_in(found[1])[-1].id})
    root = with_bus(stack, events)
    assert publish.handler(batch(found), None, root) == {"batchItemFailures": [{"itemIdentifier": "101"}]}
    assert "didn't take 2 of" in caplog.text and "ThrottlingException" in caplog.text
    events.refuses.clear()
    assert publish.handler(batch(found[1:]), None, root) == {"batchItemFailures": []}
    assert set(events.ids) == set(ids) and len(events.ids) > len(ids), "consumers know a repetition by its id"


def test_an_event_too_long_for_a_plain_item_is_read_as_well(stack: Stack) -> None:
    stack.submit_run()
    one = history(stack)[0]
    event = events_in(one)[0].with_(detail="why " * 400)
    long = replace(one, body=event.model_dump_json(exclude_defaults=True).encode())
    assert packed(long.body) is not None
    events = Events()
    publish.handler(batch([long]), None, with_bus(stack, events))
    assert events.taken[0]["detail"] == event.detail


def test_what_cant_be_read_is_left_out_and_holds_up_nobody(stack: Stack, caplog: pytest.LogCaptureFixture) -> None:
    stack.submit_run()
    found, events = history(stack)[:2], Events()
    sent = batch([found[0], replace(found[0], body=b'[{"id"'), found[0], found[1]])
    sent["Records"][2]["dynamodb"]["NewImage"] = {"pk": {"S": "events/p"}, "sk": {"S": "1#x"}, "packed": {"B": "eA=="}}
    assert publish.handler(sent, None, with_bus(stack, events)) == {"batchItemFailures": []}
    assert events.ids == [event.id for record in found for event in events_in(record)]
    assert caplog.text.count("can't be read") == 2


def test_what_a_migration_brings_was_announced_where_it_happened(stack: Stack) -> None:
    stack.submit_run()
    found, store = history(stack), stack.root.ports.store
    receiving = save(store, Fence(state=FenceState.receiving, migration="m"))
    events = Events()
    assert publish.handler(batch(found), None, with_bus(stack, events)) == {"batchItemFailures": []}
    stack.rig.world.clock.pass_(1)
    now = stack.rig.world.clock.now()
    active = save(store, receiving.with_(state=FenceState.active, arrived=now))
    submit(stack.rig, task("later"))
    everything = history(stack)
    new = [event.id for record in everything for event in events_in(record) if event.at >= now]
    publish.handler(batch(everything), None, with_bus(stack, events))
    assert new and events.ids == new
    save(store, active.with_(state=FenceState.moved))
    publish.handler(batch(everything), None, with_bus(stack, events))
    assert events.ids == [*new, *new], "what happened here is announced, though it is elsewhere now"


def test_what_a_restored_moment_brings_back_was_announced_before(stack: Stack) -> None:
    stack.submit_run()
    found, store, clock = history(stack), stack.root.ports.store, stack.rig.world.clock
    clock.pass_(1)
    now = clock.now()
    stack.rig.world.save(Restoration(as_of=now, at=now + HOUR, looks_until=now + HOUR))  # acts again since
    submit(stack.rig, task("later"))
    everything, events = history(stack), Events()
    root = with_bus(stack, events)
    root = Root(replace(root.ports, hold=EventHold(store, clock)))
    publish.handler(batch(everything), None, root)
    new = [event.id for record in everything[len(found) :] for event in events_in(record)]
    assert new and events.ids == new


def test_without_a_bus_it_says_how_to_have_one(stack: Stack) -> None:
    with pytest.raises(NotDeployed, match="Bus=on"):
        publish.handler(batch([]), None, stack.root)


def test_it_needs_what_its_policy_allows_and_nothing_else(stack: Stack) -> None:
    stack.submit_run()
    found, policed = history(stack), Policed()
    root = deployed(stack.root, policed, "publish")
    publish.handler(batch(found), None, Root(replace(root.ports, bus=EventBus(Events(), "bus"))))
    assert policed.refused == []
    assert spare(policed, "publish", "Stream", "Streams", "Announce") == set(), "Lambda reads the stream in its name"
    assert {grant.sid for grant in named("publish").grants} == {"ReadOne", "Stream", "Streams", "Announce"}
