"""A stage that was restored looks before it acts, as a restored server does: its functions buy and end nothing, and
note what they meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, HOUR, SECOND
from chalicelib.domain.restorations import MOST_MET, Met, Restoration
from chalicelib.engine.hold import HEARD_WITHIN, EventHold, go_on
from chalicelib.errors import OnlyLooks
from chalicelib.planning.kernel.purchases import confirmation_delay
from chalicelib.runtime.root import Root
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Record
from functions import bootstrap_host, erase_unused, provider, reap_idle, reconcile, workflow_step
from tests.api.rig import ADMIN, submit, task
from tests.api.test_runs import finish
from tests.functions.test_handlers import Stack
from tests.functions.test_policies import deployed
from tests.usecases.cluster import Cluster
from tests.world.calls import Policed
from tests.world.plane import World
from tests.world.time import Clock

ACCOUNT = f"{FACTS.name}-all"
APART = confirmation_delay(FACTS)  # of two sweeps that agree
STEP = {"workflow": "0f0f0f0f-0000-4000-8000-000000000000-0-0-0", "step": "barrier", "undo": True}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A machine was bought since the moment to which the stage is restored."""
    made = Stack.at(tmp_path)
    made.submit_run()
    made.perform()
    store = made.root.ports.store
    instance = keys.instance(made.instance["id"])
    store.commit([Delete(record.key) for record in store.scan() if record.key.pk == instance.pk])
    now = made.rig.world.at
    made.rig.world.save(Restoration(as_of=now - HOUR, at=now, looks_until=now + HOUR))
    yield made
    made.root.close()


def held(stack: Stack) -> Root:
    """As a process of a function begins after the restore."""
    ports = stack.root.ports
    return Root(replace(ports, hold=EventHold(ports.store, ports.clock)))


def machines(root: Root) -> list[str]:
    (account,) = root.ports.backends.accounts()
    return sorted(each.handle.id for each in account.backend.list_owned())


def met(stack: Stack) -> dict[str, Any]:
    return dict(stack.rig.ok("/api/server/get_restoration", token=ADMIN)["restored"])


def test_functions_buy_and_end_nothing_before_an_operators_word(stack: Stack) -> None:
    root, clock = held(stack), stack.rig.world.clock
    bought = machines(root)
    late = submit(stack.rig, task("another"))
    assert late["status"] == "submitted", "people go on"
    for _ in range(3):
        for done in (
            reconcile.handler({"units": [f"run/{late['id']}"]}, None, root),
            reap_idle.handler({}, None, root),
        ):
            assert (done["units"], done["failed"]) == (0, {})
        assert provider.handler({"sweep": ACCOUNT}, None, root) == {"given_back": [], "lost": []}
        clock.pass_(APART / SECOND)
    assert machines(root) == bought and stack.events == []
    assert [each["id"] for each in met(stack)["met"]] == bought and met(stack)["looking"]
    for handler in (workflow_step.handler, bootstrap_host.handler):
        with pytest.raises(OnlyLooks, match="only looks until it goes on"):
            handler(STEP, None, root)

    assert stack.rig.ok("/api/server/go_on", token=ADMIN)["restored"]["looking"] is False
    clock.pass_(HEARD_WITHIN / SECOND)
    stack.hints.clear()
    assert reconcile.handler({"units": [f"run/{late['id']}"]}, None, root)["units"] > 0
    for _ in range(2):
        done = provider.handler({"sweep": ACCOUNT}, None, root)
        clock.pass_(APART / SECOND)
    assert done["given_back"] == [f"{each.partition('-')[0]} {each}" for each in bought] and bought


def test_an_event_from_before_the_restore_isnt_carried_out(stack: Stack) -> None:
    """Lambda keeps events for minutes, and this one buys a machine for a run that nobody knows then."""
    go_on(stack.root.ports.store, stack.rig.world.clock)
    submit(stack.rig, task("another"))
    stack.reconcile()
    (event,) = stack.events
    now = stack.rig.world.at
    mark = nouns.find(stack.root.ports.store, Restoration, keys.RESTORATION)
    assert mark is not None
    stack.rig.world.save(mark.with_(went_on_at=None, looks_until=now + HOUR))
    (done,) = stack.perform(held(stack))
    assert done == {"held": event["unit"]} and len(machines(stack.root)) == 2, "a machine and its disk"


def test_nothing_is_erased_meanwhile(stack: Stack) -> None:
    made = submit(stack.rig, task("gone"))
    finish(stack.rig, made["id"])
    stack.rig.ok("P/runs/delete", {"runs_names": ["gone"]})
    now = stack.rig.world.at = stack.rig.world.at + DAY
    mark = nouns.find(stack.root.ports.store, Restoration, keys.RESTORATION)
    assert mark is not None
    stack.rig.world.save(mark.with_(looks_until=now + HOUR))
    root = held(stack)
    assert not any(erase_unused.handler({}, None, root).values())
    go_on(stack.root.ports.store, stack.rig.world.clock)
    assert made["id"] in erase_unused.handler({}, None, held(stack))["runs"]


def test_each_function_may_read_the_mark_and_whoever_meets_something_may_note_it(stack: Stack) -> None:
    policed = Policed()
    for function, ask in (("reconcile", reconcile.handler), ("reap_idle", reap_idle.handler)):
        ask({}, None, deployed(held(stack), policed, function))
    provider.handler({"sweep": ACCOUNT}, None, deployed(held(stack), policed, "provider_clouds"))
    erase_unused.handler({}, None, deployed(held(stack), policed, "erase_unused"))
    for function, handler in (("workflow_step", workflow_step.handler), ("bootstrap_host", bootstrap_host.handler)):
        with pytest.raises(OnlyLooks):
            handler(STEP, None, deployed(held(stack), policed, function))
    assert len(met(stack)["met"]) == 2 and policed.refused == []


class Counted(MemoryStore):
    """Counts the reads of the mark."""

    asked = 0

    def get(self, key: keys.Key) -> Record | None:
        self.asked += key == keys.RESTORATION
        return super().get(key)


def test_a_stage_that_was_never_restored_reads_the_mark_once_a_process(tmp_path: Path) -> None:
    store = Counted()
    hold = EventHold(store, Clock())
    world = World.in_folder(tmp_path, hold=hold)
    agent = Cluster.of(world).agent
    agent.join()
    for _ in range(20):
        world.clock.pass_(60)
        agent.sync()
    assert store.asked == 1 and not hold.looking
    hold.met(Met(kind="task", id="1", says="one"))
    assert store.records() == []


def test_what_functions_meet_at_once_is_all_noted_and_the_word_is_heard_by_each() -> None:
    store, clock = Counted(), Clock()
    store.commit([nouns.put(Restoration(as_of=0, at=clock.now(), looks_until=clock.now() + HOUR))])
    one, other = EventHold(store, clock), EventHold(store, clock)
    assert one.looking and other.looking
    one.met(Met(kind="task", id="1", says="one"), Met(kind="task", id="1", says="one"))
    other.met(Met(kind="task", id="1", says="one"), Met(kind="task", id="2", says="two"))

    def noted() -> list[str]:
        mark = nouns.find(store, Restoration, keys.RESTORATION)
        assert mark is not None
        return [each.id for each in mark.met]

    assert noted() == ["1", "2"]
    asked = store.asked
    for _ in range(5):
        assert one.looking
        one.met(Met(kind="task", id="1", says="one"))
    assert store.asked == asked, "an answer is good for some seconds"
    one.met(*(Met(kind="task", id=str(number), says="many") for number in range(MOST_MET + 9)))
    assert len(noted()) == MOST_MET
    go_on(store, clock)
    other.met(Met(kind="task", id="3", says="three"))
    clock.pass_(HEARD_WITHIN / SECOND)
    assert not one.looking and not other.looking and len(noted()) == MOST_MET
    other.met(Met(kind="task", id="4", says="four"))
    assert len(noted()) == MOST_MET
