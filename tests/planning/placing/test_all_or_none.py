"""All jobs of a unit are placed, or none; and an attempt that came to nothing leaves no trace on the floor."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.jobs import Attempt, Job, JobStatus
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.matching.requirements import requirements_of
from chalicelib.planning.placing.all_or_none import Unplaced, place_together
from chalicelib.planning.placing.buying import Purchase
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.options import FreePlace, Unplaceable, Waiting, find
from chalicelib.planning.placing.queue import decide_queue, place
from tests.harness.examples import many
from tests.world import nouns as b
from tests.world.nouns import lint

LOCAL, CLOUD = b.fleet("local"), b.fleet("cloud")
OFFERS = (
    b.offer("small", 1.0, has=b.resources(cpus=4, gb=16)),
    b.offer("large", 3.0, has=b.resources(cpus=16, gb=64)),
)
WANTS: tuple[dict[str, Any], ...] = (
    {"resources": {"cpu": "1..", "memory": "1GB.."}},
    {"resources": {"cpu": "4..", "memory": "4GB.."}},
    {"resources": {"cpu": "8..", "memory": "8GB.."}, "max_price": 2.5},
    {"resources": {"cpu": "16..", "memory": "1GB.."}},
    {"creation_policy": "reuse", "resources": {"cpu": "2..", "memory": "1GB.."}},
    {"fleets": ["cloud"]},
    {"resources": {"gpu": "1"}},
)
SPECS = [b.run_spec(**wants) for wants in WANTS]

Placement = tuple[QueuedJob, FreePlace | Purchase]


def gang(name: str, *wants: int, tried: str = "") -> list[QueuedJob]:
    """The waiting jobs of one replica, each with its own wants."""
    run = b.run(name)
    attempts = (Attempt(offer_key=tried, error="none left"),) if tried else ()
    return [
        QueuedJob(b.job(run, node=node, attempts=attempts), run, b.job_spec(SPECS[at]), SPECS[at])
        for node, at in enumerate(wants)
    ]


def put(capacity: Capacity, unit: list[QueuedJob]) -> tuple[list[Placement], Unplaced | None]:
    answer = place_together(capacity, unit, partial(place, Draft(b.NOW), capacity, b.FACTS))
    if isinstance(answer, Unplaced):
        return [], answer
    return list(zip(unit, answer, strict=True)), None


def replayed(views: tuple[FleetView, ...], placed: list[Placement]) -> Capacity:
    """A fresh floor with only these placements, made without asking."""
    capacity = Capacity(views, OfferBook(OFFERS))
    for item, where in placed:
        place(Draft(b.NOW), capacity, b.FACTS, item, where)
    return capacity


def same(one: Capacity, other: Capacity) -> None:
    assert (one.fleets, one.count, one.instances) == (other.fleets, other.count, other.instances)
    for at, spec in enumerate(SPECS):
        for tried in ("", OFFERS[0].key):
            (item,) = gang("probe", at, tried=tried)
            wants = requirements_of(spec, item.spec)
            assert find(one, wants, item.job) == find(other, wants, item.job), WANTS[at]


def sound(capacity: Capacity) -> None:
    """No block is given twice, and no fleet is larger than it may be."""
    for instance in capacity.instances.values():
        blocks = [block for claim in instance.claims for block in claim.blocks]
        assert len(blocks) == len(set(blocks)) and set(blocks) <= set(range(instance.total_blocks))
    for pool in capacity.pools:
        nodes = pool.view.spec.configuration.nodes
        if nodes is not None and nodes.max is not None:
            assert capacity.count[pool.view.fleet.id] <= nodes.max


hosts = st.lists(
    st.tuples(
        st.sampled_from([(4, 1), (16, 1), (16, 4), (8, 2)]),  # CPUs and blocks
        st.integers(0, 2),  # blocks that are taken
        st.sampled_from(["fine", "fine", "fine", "unreachable", "unhealthy"]),
    ),
    max_size=4,
)
clouds = st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 4]), st.integers(0, 2), st.booleans())


def views_of(own: list[Any], cloud: tuple[int, int, int, bool]) -> tuple[FleetView, ...]:
    local = []
    for num, ((cpus, blocks), taken, state) in enumerate(own):
        has = b.resources(cpus=cpus, gb=cpus * 4)
        host = b.host(
            num, LOCAL, has=has, total_blocks=blocks, unreachable_since=b.NOW if state == "unreachable" else None
        )
        host = host.with_(health="failure" if state == "unhealthy" else "healthy")
        held = range(min(taken, blocks))
        local.append(b.holding(host, b.job(b.run(f"other-{num}")), *held) if held else host)
    most, blocks, there, coming = cloud
    status = InstanceStatus.provisioning if coming else InstanceStatus.idle
    offer = OFFERS[1].with_(blocks=blocks, total_blocks=blocks)
    machines = [b.machine(n, CLOUD, offer=offer, total_blocks=blocks, status=status) for n in range(min(there, most))]
    grown = CLOUD.with_(next_instance_num=len(machines))
    return b.view(LOCAL, *local), b.view(grown, *machines, nodes=f"0..{most}", blocks=blocks)


units = st.lists(
    st.tuples(st.lists(st.integers(0, len(WANTS) - 1), min_size=1, max_size=5), st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=many(100), deadline=None)
@given(hosts, clouds, units)
@pytest.mark.slow
def test_a_failed_attempt_leaves_the_floor_as_it_was(own: Any, cloud: Any, wanted: Any) -> None:
    views = views_of(own, cloud)
    capacity, placed = Capacity(views, OfferBook(OFFERS)), []
    for number, (wants, tried) in enumerate(wanted):
        unit = gang(f"run-{number}", *wants, tried=OFFERS[0].key if tried else "")
        made, refused = put(capacity, unit)
        placed += made
        sound(capacity)
        if refused is not None:
            fresh = replayed(views, placed)
            same(capacity, fresh)
            assert put(fresh, unit)[1] == refused


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_a_gang_that_finds_two_of_three_places_takes_none_and_the_next_job_gets_one() -> None:
    hosts = [b.host(num, LOCAL) for num in range(2)]
    snapshot = b.waiting(*gang("gang", 0, 0, 0), *gang("single", 0), fleets=(b.view(LOCAL, *hosts),))
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    jobs = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Job)]
    assert [(job.name, job.status) for job in jobs if job.assignment] == [("single-0-0", "provisioning")]
    assert [job.message for job in jobs if job.run_name == "gang"] == ["waiting for free capacity in fleet `local`"] * 3
    assert [note.text for note in plan.notes] == ["waiting for free capacity in fleet `local`; 0 ahead of it"]


def test_a_gang_is_placed_in_one_step_on_what_is_there_and_what_it_buys() -> None:
    views = b.view(LOCAL, b.host(0, LOCAL)), b.view(CLOUD, nodes="0..2", blocks=2)
    snapshot = b.waiting(*gang("gang", 1, 0, 0, 0), fleets=views, offers=OFFERS)
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    (step,) = plan.steps
    where = {noun.job_num: noun.assignment for noun in step.saves if isinstance(noun, Job)}
    assert [where[num].instance_name for num in range(4)] == ["local-0", "cloud-0", "cloud-0", "cloud-1"]
    assert len(step.effects) == 2


def test_what_a_gang_was_about_to_buy_is_not_missing_later() -> None:
    views = (b.view(CLOUD, nodes="0..2"),)
    capacity = Capacity(views, OfferBook(OFFERS))
    made, refused = put(capacity, gang("gang", 0, 0, 0))
    assert not made and refused is not None and refused.item.job.job_num == 2
    assert refused.reason == Waiting("cloud", "for room in fleet `cloud` (2 of 2 nodes)")
    made, _ = put(capacity, gang("pair", 0, 0))
    assert [where.offer.instance.name for _, where in made if isinstance(where, Purchase)] == ["small", "small"]
    assert capacity.fleets[CLOUD.id].next_instance_num == 2 and capacity.count[CLOUD.id] == 2


def test_a_machine_that_was_not_bought_after_all_is_not_waited_for() -> None:
    views = (b.view(CLOUD, nodes="0..1", blocks=2),)
    capacity = Capacity(views, OfferBook(OFFERS[1:]))
    made, refused = put(capacity, gang("gang", 0, 0, 0))  # two share a machine, and there is no other
    assert not made and refused is not None
    made, _ = put(capacity, gang("whole", 3))  # takes all of one
    assert [where.offer.instance.name for _, where in made if isinstance(where, Purchase)] == ["large"]
    _, refused = put(capacity, gang("late", 0))
    assert refused is not None and refused.reason == Waiting("cloud", "for room in fleet `cloud` (1 of 1 nodes)")


def test_the_first_job_that_fits_nowhere_is_named_and_the_whole_gang_fails() -> None:
    views = (b.view(LOCAL, b.host(0, LOCAL)),)
    capacity = Capacity(views, OfferBook())
    _, refused = put(capacity, gang("gang", 0, 6, 3))
    assert refused is not None and refused.item.job.job_num == 1
    assert isinstance(refused.reason, Unplaceable) and "needs 1 GPU, has none" in refused.reason.notes[0].text
    snapshot = b.waiting(*gang("gang", 0, 6, 3), fleets=views)
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    jobs = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Job)]
    assert [job.status for job in jobs] == [JobStatus.failed] * 3
    assert all("needs 1 GPU, has none" in job.message for job in jobs)


def test_replicas_of_a_run_are_units_of_their_own() -> None:
    run = b.run("two")
    items = [
        QueuedJob(b.job(run, replica=replica, node=node), run, b.job_spec(SPECS[0]), SPECS[0])
        for replica in range(2)
        for node in range(2)
    ]
    hosts = [b.host(num, LOCAL) for num in range(3)]
    plan = decide_queue(b.waiting(*items, fleets=(b.view(LOCAL, *hosts),)))
    placed = [noun.slot for step in plan.steps for noun in step.saves if isinstance(noun, Job) and noun.assignment]
    assert placed == [(0, 0), (0, 1)]
