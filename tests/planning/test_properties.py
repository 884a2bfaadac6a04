"""SAFETY: whatever happens in whatever order, no promise is broken. LIVENESS: when faults stop, everything ends.

Safety is checked by the world after every commit; liveness by letting deadlines alone, every wake-up lost, carry it to
its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.billing.usage import job_cost
from chalicelib.domain.events import Event
from chalicelib.domain.gangs import GangStatus
from chalicelib.domain.instants import HOUR
from chalicelib.domain.runs import RunStatus
from tests.harness.examples import many
from tests.world import nouns as b
from tests.world.decisions import SmallWorld

SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"resources": {"cpu": "1..", "memory": "1GB.."}},
    {"retry": {"on_events": ["error", "no-capacity", "interruption"], "duration": "30m"}},
    {"max_duration": "5m", "priority": 3},
    {"resources": {"gpu": 8}},
    {"creation_policy": "reuse"},
    {"stop_duration": "off"},
    {"replicas": 2, "retry": {"duration": "30m"}},
    {"nodes": 2, "retry": {"duration": "30m"}},
    {"replicas": 2, "nodes": 2, "retry": {"on_events": ["error"], "duration": "2h"}},
    {"nodes": 3},
)
# What may happen; `round` is an ordinary moment of everything, so that histories get deep enough to be interesting.
OPS = (
    "submit",
    "round",
    "wait",
    "exit",
    "due",
    "sync",
    "execute",
    "queue",
    "runs",
    "instances",
    "fleets",
    "stop",
    "abort",
)

OPS += ("silent", "delete", "round", "round", "submit")
step = st.tuples(st.sampled_from(OPS), st.integers(min_value=0, max_value=11))


def build(hosts: int, blocks: int, most: int, least: int, offers: int) -> SmallWorld:
    world = SmallWorld(offers=tuple(b.offer(f"m{n}", 1.0 + n, has=b.resources(cpus=4, gb=16)) for n in range(offers)))
    world.add_fleet("local", hosts=hosts, blocks=blocks, placement="cluster")
    if most:
        world.add_fleet("cloud", nodes={"min": min(least, most), "max": most}, blocks=blocks, idle_duration="5m")
    return world


def apply(world: SmallWorld, op: str, n: int) -> None:
    runs, instances = list(world.runs.values()), list(world.instances)
    if op == "round":
        for part in ("queue", "execute", "sync", "due", "instances", "runs"):
            apply(world, part, n if part == "execute" else 0)
    elif op == "submit" and len(runs) < 6:
        world.submit(**SPECS[n % len(SPECS)])
    elif op == "queue":
        world.pass_queue()
    elif op == "runs":
        for run in runs:
            world.pass_run(world.runs[run.id])
    elif op == "instances":
        for instance_id in instances:
            world.pass_instance(instance_id)
    elif op == "fleets":
        for fleet_id in world.fleets:
            world.pass_fleet(fleet_id)
    elif op == "execute":
        world.execute(fault=n % 5)
    elif op in ("sync", "exit"):
        for instance_id in world.alive()[n % 3 :]:
            world.sync(instance_id, exits=None if op == "sync" else n % 2)
    elif op in ("stop", "abort") and runs:
        world.stop(runs[n % len(runs)], abort=op == "abort")
    elif op == "delete" and n % 4 == 0:
        world.delete_fleet("cloud")
    elif op == "silent" and instances:
        world.silent ^= {instances[n % len(instances)]}
    elif op == "wait":
        world.now += (1, 10, 60, 300, 1500, 7200)[n % 6] * b.SECOND
    elif op == "due":
        for (kind, unit), at in sorted(world.due().items()):
            if at <= world.now:
                world.pass_over(kind, unit)


worlds = st.builds(
    build,
    hosts=st.integers(0, 2),
    blocks=st.sampled_from([1, 2, 4]),
    most=st.integers(0, 2),
    least=st.integers(0, 1),
    offers=st.integers(0, 2),
)
calm = settings(max_examples=many(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@calm
@given(worlds, st.lists(step, max_size=40))
@pytest.mark.slow
def test_safety_and_liveness(world: SmallWorld, steps: list[tuple[str, int]]) -> None:
    for op, n in steps:
        apply(world, op, n)
    for fleet_id, (fleet, spec) in world.fleets.items():  # in the end everything may go
        config = spec.configuration
        loose = config if config.nodes is None else config.with_(nodes=config.nodes.with_(min=0, target=0))
        world.fleets[fleet_id] = (fleet.with_(to_create=0), spec.with_(configuration=loose))
    world.add_hosts(
        "local", max((nodes for _, nodes in world.shapes.values() if nodes > 1), default=0)
    )  # to fit a gang
    world.settle()
    assert all(run.reason is not None for run in world.runs.values())
    assert not any(instance.claims for instance in world.instances.values())
    for job in world.jobs.values():
        if job.assignment is not None:  # one that lost its machine before it came has cost nothing
            assert cost_by_events(world.events, job.id) == pytest.approx(job_cost(job, world.now), abs=1e-6), job.name


def cost_by_events(events: Iterable[Event], job_id: str) -> float:
    """What a job's last place cost: what is needed to know that is in the history alone."""
    trades = [(event.at, event.trade) for event in events if event.trade and event.targets[0].id == job_id]
    (since, taken), (until, returned) = trades[-2:]
    assert (taken.act, returned.act) == ("taken", "returned")
    return taken.price * (until - since) / HOUR


@calm
@given(worlds, st.lists(step, max_size=25))
@pytest.mark.slow
def test_a_repeated_look_decides_nothing_new(world: SmallWorld, steps: list[tuple[str, int]]) -> None:
    """A pass that runs twice at one moment, as two reconcilers do, adds nothing the second time."""
    for op, n in steps:
        apply(world, op, n)
    passes = [("queue", ""), *(("fleet", f) for f in world.fleets), *(("instance", i) for i in world.instances)]
    for kind, unit in [*passes, *(("run", r) for r in world.runs)]:
        for _ in range(3):  # a decision may take a second look to follow from the first; then there is rest
            world.pass_over(kind, unit)
        effects, events = len(world.effects), len(world.events)
        world.pass_over(kind, unit)
        assert (len(world.effects), len(world.events)) == (effects, events)


@pytest.mark.parametrize("jobs", [1, 7])
def test_a_plain_history_ends_well(jobs: int) -> None:
    world = build(hosts=2, blocks=1, most=2, least=0, offers=1)
    for _ in range(jobs):
        world.submit()
    world.settle()
    assert {run.status for run in world.runs.values()} == {RunStatus.done}


def test_tasks_on_several_nodes_end_well_too() -> None:
    world = build(hosts=3, blocks=2, most=0, least=0, offers=0)
    world.submit(nodes=3)
    world.submit(nodes=2, replicas=2)
    world.submit()
    world.settle()
    assert {run.status for run in world.runs.values()} == {RunStatus.done}
    assert {gang.status for gang in world.gangs.values()} == {GangStatus.released}


def test_events_tell_the_whole_story_in_order() -> None:
    world = build(hosts=1, blocks=1, most=0, least=0, offers=0)
    run = world.submit()
    world.settle()
    job = next(job for job in world.jobs.values() if job.run_id == run.id)
    messages = [
        event.message.split(":")[0]
        for event in sorted(world.events, key=lambda e: e.at)
        if event.targets[0].id == job.id
    ]
    assert messages == [
        "submitted → provisioning",
        "provisioning → pulling",
        "pulling → running",
        "running → terminating",
        "terminating → done",
    ]
