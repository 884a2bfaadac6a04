"""How a task on several nodes gets its places: found in one pass, claimed in chunks, sealed with the last chunk.

A chunk is what fits into one commit. Until the seal no place counts: another pass continues where this one stopped, or
the run's own pass undoes the gang after a time limit. So a process that dies in between costs half a minute and no
place. A node's volumes are claimed with its place, so later jobs wait for them in the queue. A run further ahead in the
queue takes the places of an unsealed gang behind it.

Once a gang has waited long enough, the machines that are free for it are held back from the jobs behind it. Otherwise
small jobs could keep it waiting for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import bundles
from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gangs import Gang, GangStatus, gang_id
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.volumes import Volume
from chalicelib.machines.gang import GANG, TO_MEET, TO_SEAL
from chalicelib.planning.kernel.plan import Note, Step
from chalicelib.planning.kernel.purchases import batch_creates, create
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.bitmaps import rows_of
from chalicelib.planning.matching.colocation import is_cluster
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.all_or_none import Unplaced, nowhere
from chalicelib.planning.placing.buying import Purchase
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.claims import claim_of
from chalicelib.planning.placing.clusters import Cluster, clusters, fitting_rows, may_use, share_out, undecided_rows
from chalicelib.planning.placing.gang_needs import Needs, complete, is_gang, no_cluster
from chalicelib.planning.placing.gang_purchases import Ordered, Retreat, order, retreat
from chalicelib.planning.placing.gang_workflow import begin_start
from chalicelib.planning.placing.markets import Markets
from chalicelib.planning.placing.new_machine import order_for
from chalicelib.planning.placing.options import Unplaceable, Waiting, unplaceable
from chalicelib.planning.placing.questions import Question
from chalicelib.planning.placing.quotas import Allowance, needed
from chalicelib.planning.placing.shortages import too_few_hosts, too_few_machines
from chalicelib.planning.volumes.attachments import claim_volumes
from chalicelib.planning.volumes.sites import Site, busy, chosen_for, free, sites, together

CHUNK = 30  # nodes per commit: each writes its machine and an event
CHUNK_WITH_DISKS = 15  # nodes per commit if they have volumes
HOLD_AFTER: Micros = 5 * MINUTE  # how long a gang waits before free machines are held back for it


@dataclass(frozen=True)
class FoundCluster:
    cluster: Cluster
    machines: tuple[Instance, ...]  # by rank

    @property
    def price(self) -> float:
        return sum(machine.offer.price for machine in self.machines)


class GangPlacer:
    """Reserves the places of gangs in a queue pass. `todo`: this part of the queue; `ahead`: gangs further ahead."""

    def __init__(
        self,
        capacity: Capacity,
        now: Micros,
        facts: Mapping[str, BackendFacts],
        gangs: Mapping[str, Gang],
        ahead: Sequence[Sequence[QueuedJob]],
        todo: Sequence[Sequence[QueuedJob]],
        allowance: Allowance,
        markets: Markets,
    ) -> None:
        self.capacity, self.now, self.facts, self._allowance, self._markets = capacity, now, facts, allowance, markets
        self._gangs = gangs
        self._preempted: set[str] = set()
        self._order = {unit[0].job.id: at for at, unit in enumerate(todo)}
        for unit in ahead:
            if is_gang(unit) and complete(unit):
                hold_back(capacity, now, Needs(unit))

    def places(self, unit: Sequence[QueuedJob]) -> tuple[Step, ...] | Unplaced:
        """The steps that reserve every missing place, or why that isn't possible."""
        gang, lead = self._gangs.get(unit[0].job.id), unit[0]
        if not complete(unit):
            return Unplaced(lead, Waiting("", "for its other jobs to be submitted"))
        if gang is not None and gang.status not in (GangStatus.gathering, GangStatus.undone):
            return ()  # it was sealed meanwhile
        begun = gang is not None and gang.status is GangStatus.gathering and gang.id not in self._preempted
        if gang is not None and gang.places and (not begun or self.now >= (gang.until or 0)):
            return Unplaced(lead, Waiting("", "for its earlier places to be given back"))
        needs = Needs(unit, len(gang.places) if gang is not None else 0)
        free_now = None if needs.first else self._with_free_volumes(unit)
        if free_now is not None:
            answer = self._reserved(Needs(free_now), gang)
            if not isinstance(answer, Unplaced):
                return answer
        return self._reserved(needs, gang)

    def _with_free_volumes(self, unit: Sequence[QueuedJob]) -> list[QueuedJob] | None:
        """The nodes, limited to sites where their volumes are free; None: those are all sites, or none."""
        having = [sites(item.volumes, self.capacity.volumes, free) for item in unit if item.volumes]
        found = iter(together(having))
        narrowed = [replace(item, sites=next(found)) if item.volumes else item for item in unit]
        if narrowed == list(unit) or any(item.sites == () for item in narrowed):
            return None
        return narrowed

    def _reserved(self, needs: Needs, gang: Gang | None) -> tuple[Step, ...] | Unplaced:
        lead = needs.unit[0]
        if without := self._without_volumes(needs.nodes):
            return Unplaced(lead, without)
        found, preempted = self._seek(needs, gang)
        if isinstance(found, FoundCluster):
            return self._all_claims(needs, found.machines, gang, preempted)
        question = Question(self.capacity, self._allowance, self._markets, needs.unit)
        more = order(self.capacity, needs, gang.places if gang is not None else ())
        places = more.places if isinstance(more, Ordered) else ()
        if wait := question.first(places if isinstance(more, Ordered | Retreat) else more or found):
            return Unplaced(lead, wait)
        if isinstance(more, Ordered):
            return self._all_claims(needs, more.places, gang, ())
        if isinstance(more, Retreat):
            return self._retreat(needs, more, gang)
        found = more or found
        if isinstance(found, Waiting) and (held := hold_back(self.capacity, self.now, needs)):
            return Unplaced(lead, Waiting(held, f"{found.text}, held back for it"))
        return Unplaced(lead, found)

    def _without_volumes(self, nodes: Sequence[QueuedJob]) -> Waiting | Unplaceable | None:
        """Why these nodes can't get their volumes now, wherever their places are; None: they can."""
        for item in nodes:
            if item.sites == ():
                return nowhere(item, self.capacity.volumes)
        shares = self._shares(nodes, [(item.sites or ()).__contains__ for item in nodes])
        return shares if isinstance(shares, Waiting) else None

    def _shares(
        self, nodes: Sequence[QueuedJob], where: Sequence[Callable[[Site], bool]]
    ) -> list[list[Volume]] | Waiting:
        """Free volumes for each node, at the site of its place."""
        left, found = dict(self.capacity.volumes), list[list[Volume]]()
        for item, takes in zip(nodes, where, strict=True):
            chosen = chosen_for(item.volumes, left, takes) if item.volumes else []
            if chosen is None:
                return Waiting("", busy(item.volumes, self.capacity.volumes))
            found.append(chosen)
            for volume in chosen:
                if not volume.shareable:
                    del left[volume.name]
        return found

    def _retreat(self, needs: Needs, back: Retreat, gang: Gang | None) -> tuple[Step, ...]:
        """Abandon the place of a cluster: first the gang frees what it holds there, then the machines are ended."""
        draft = Draft(self.now)
        if gang is not None and gang.status is GangStatus.gathering:
            draft.move(GANG, gang, "undo", until=None, due_at=self.now)
            draft.wake(gang.unit)
        else:
            retreat(draft, needs, back, self.capacity)
        return (draft.step(),)

    def _seek(self, needs: Needs, gang: Gang | None) -> tuple[FoundCluster | Waiting | Unplaceable, list[Gang]]:
        """A place for every node, if necessary with the places of unsealed gangs behind it."""
        mark, preempted = self.capacity.mark(), list[Gang]()
        found = seek(self.capacity, needs, gang)
        for rival in self._rivals(needs.lead):
            if isinstance(found, FoundCluster):
                break
            preempted.append(rival)
            for place in rival.places:
                if (instance := self.capacity.instances.get(place)) is not None:
                    self.capacity.record_release(without(instance, rival))
            found = seek(self.capacity, needs, gang)
        self.capacity.roll_back(mark)
        return found, preempted

    def _all_claims(
        self, needs: Needs, found: Sequence[Instance | Purchase], gang: Gang | None, preempted: Sequence[Gang]
    ) -> tuple[Step, ...] | Unplaced:
        """Claim place, volumes and quota for every node, or nothing at all."""
        run, need = needs.unit[0].run, needed(found, len(needs.nodes))
        if wait := self._allowance.refuses(run, need):
            return Unplaced(needs.unit[0], Waiting("", wait))
        shares = self._shares(needs.nodes[: len(found)], [_at(place) for place in found])
        if isinstance(shares, Waiting):
            return Unplaced(needs.unit[0], shares)
        self._preempted.update(rival.id for rival in preempted)
        self._allowance.takes(run, need, (item.job for item in needs.unit))
        return tuple(self._claims(needs, found, shares, gang, preempted))

    def _claims(
        self,
        needs: Needs,
        found: Sequence[Instance | Purchase],
        shares: Sequence[Sequence[Volume]],
        gang: Gang | None,
        preempted: Sequence[Gang],
    ) -> Iterator[Step]:
        first, lead, nodes = needs.first, needs.lead, len(needs.unit)
        attempt = 0 if gang is None else gang.attempt + (gang.status is GangStatus.undone)
        size = CHUNK_WITH_DISKS if any(shares) else CHUNK
        bundle = self._next_bundle(found)
        whole: Instance | None = None  # the first machine of a bundle, which is bought once all are committed
        for start in range(0, max(1, len(found)), size):
            chunk, draft = found[start : start + size], Draft(self.now)
            for rival in preempted if start == 0 else ():
                draft.move(GANG, rival, "undo", message=f"gave way to {lead.run_name}", until=None, due_at=self.now)
                draft.wake(rival.unit)
            held = [
                self._claimed(draft, needs.unit[first + number], place, shares[number], preempted, attempt, bundle)
                for number, place in enumerate(chunk, start)
            ]
            arrival_deadline = max((each.deadline or 0 for each in held), default=0)
            places = (*(gang.places if gang else ()), *(each.id for each in held))
            gang = _reserved(draft, gang, lead, nodes, places, arrival_deadline)
            self._allowance.sign(draft, needs.unit[0].run)
            whole = whole or next(iter(held), None)
            if bundle is not None and whole is not None and start + size >= len(found):
                draft.save(whole)
                draft.act(create(whole))
            yield batch_creates(draft.step(), self.facts)

    def _next_bundle(self, found: Sequence[Instance | Purchase]) -> int | None:
        """The number of the first machine, if all are bought as one bundle."""
        buy = found[0] if found else None
        if not isinstance(buy, Purchase) or buy.offer.bundle == 1:
            return None
        return self.capacity.fleets[buy.view.fleet.id].next_instance_num

    def _claimed(
        self,
        draft: Draft,
        item: QueuedJob,
        place: Instance | Purchase,
        share: Sequence[Volume],
        preempted: Sequence[Gang],
        attempt: int,
        bundle: int | None,
    ) -> Instance:
        if isinstance(place, Instance):
            instance = _claim(draft, self.capacity, item, without(place, *preempted))
        else:
            facts = self.facts.get(place.offer.backend) or BackendFacts(name=place.offer.backend)
            group = f"{gang_id(item.job)}/{attempt}" if place.offer.is_container else ""
            instance = order_for(draft, self.capacity, facts, item, place, group, bundle)
        if share:
            latest = [self.capacity.volumes[volume.name] for volume in share]
            taken, instance = claim_volumes(draft, latest, item.job, instance, early=True)
            self.capacity.record_mounts(taken, instance)
        return instance

    def _rivals(self, lead: Job) -> list[Gang]:
        """Unsealed gangs further back in the queue, the last first."""
        own = self._order[lead.id]
        behind = [
            (self._order[job_id], gang)
            for job_id, gang in self._gangs.items()
            if gang.status is GangStatus.gathering
            and gang.id not in self._preempted
            and self._order.get(job_id, own) > own
        ]
        return [gang for _, gang in sorted(behind, key=lambda each: -each[0])]


def _at(place: Instance | Purchase) -> Callable[[Site], bool]:
    if isinstance(place, Instance):
        return lambda site: site.has(place)
    return lambda site: site.surely(place.offer)


def seek(capacity: Capacity, needs: Needs, gang: Gang | None) -> FoundCluster | Waiting | Unplaceable:
    """The cheapest places in a cluster that has enough of them, or why there are none."""
    groups = needs.groups()
    found: list[FoundCluster] = []
    waits: Waiting | None = None
    notes: list[Note] = []
    for cluster in clusters(capacity):
        if gang is not None and not all(_still_usable(capacity, cluster, place) for place in gang.places):
            continue
        fitting = [fitting_rows(capacity, cluster, requirements) for requirements in groups]
        counts = [len(ranks) for ranks in groups.values()]
        free = cluster.free(capacity)
        if chosen := share_out(counts, [rows & free for rows in fitting]):
            machines = _by_rank(capacity, cluster, list(groups.values()), chosen)
            found.append(
                FoundCluster(cluster, tuple(machines if cluster.bundle is None else sorted(machines, key=bundles.rank)))
            )
        elif found:
            continue
        elif text := _awaited(capacity, cluster, needs, fitting, free):
            waits = waits or Waiting(cluster.name, text)
        elif cluster.pool.view.spec.configuration.nodes is None and may_use(capacity, cluster.at, groups):
            notes.append(too_few_hosts(capacity, cluster, needs))
    if found:
        return min(found, key=lambda each: each.price)
    if waits is not None or (gang is not None and gang.places):
        return waits or Waiting("", f"for the rest of {gang.nodes if gang else 0} hosts")
    notes += too_few_machines(capacity, needs)
    if not notes and any(is_cluster(pool.view.spec) for pool in capacity.pools):
        return unplaceable(capacity, next(iter(groups)), _with_all_attempts(needs), together=True)
    return Unplaceable(tuple(notes) or (no_cluster(capacity),))


def _with_all_attempts(needs: Needs) -> Job:
    """The first node's job with the failed attempts of all nodes."""
    attempts = (attempt for item in reversed(needs.unit) for attempt in item.job.attempts)
    return needs.lead.with_(attempts=tuple(attempts))


def hold_back(capacity: Capacity, now: Micros, needs: Needs) -> str:
    """Hold free machines of a gang back from the jobs behind it; returns the name of their fleet, if any."""
    if now - needs.lead.submitted_at < HOLD_AFTER:
        return ""
    groups = needs.groups()
    for cluster in clusters(capacity):
        fitting = [fitting_rows(capacity, cluster, requirements) for requirements in groups]
        held = cluster.free(capacity) & _any(fitting)
        enough = share_out([len(ranks) for ranks in groups.values()], fitting)
        if enough or _awaits_room(capacity, cluster, len(needs.nodes), held, _any(fitting)):
            for row in rows_of(held):
                capacity.hold_for(
                    cluster.pool.machines[row], f"run `{needs.lead.run_name}`, which waits for {_hosts(needs)}"
                )
            return cluster.name
    return ""


def _awaits_room(capacity: Capacity, cluster: Cluster, nodes: int, free: int, fitting: int) -> bool:
    """Will the cluster have enough machines once it has grown, but not while so many are in use?"""
    room = capacity.room(cluster.pool)
    return room is not None and free.bit_count() + room < nodes <= fitting.bit_count() + room


# --- which machines --------------------------------------------------------------------------------------------------


def _any(sets: Sequence[int]) -> int:
    found = 0
    for rows in sets:
        found |= rows
    return found


def _by_rank(capacity: Capacity, cluster: Cluster, groups: list[list[int]], chosen: list[int]) -> Iterator[Instance]:
    where: dict[int, int] = {}
    for ranks, rows in zip(groups, chosen, strict=True):
        where.update(zip(ranks, rows_of(rows), strict=True))
    for rank in sorted(where):
        yield capacity.instances[cluster.pool.machines[where[rank]].id]


def _still_usable(capacity: Capacity, cluster: Cluster, place: str) -> bool:
    """Is a machine that was claimed earlier still ready, and in this cluster?"""
    rows = cluster.rows & cluster.pool.ready
    return any(cluster.pool.machines[row].id == place for row in rows_of(rows))


def _hosts(needs: Needs) -> str:
    return f"{len(needs.nodes)} whole hosts"


def _awaited(capacity: Capacity, cluster: Cluster, needs: Needs, fitting: Sequence[int], free: int) -> str:
    """What the gang waits for in the cluster; empty if that hasn't enough machines, free or not."""
    groups = needs.groups()
    counts = [len(ranks) for ranks in groups.values()]
    if share_out(counts, fitting):
        ready = len(list(rows_of(free & _any(fitting))))
        return f"for {_hosts(needs)} in cluster `{cluster.name}` at once ({ready} free now)"
    coming = [undecided_rows(capacity, cluster, requirements) for requirements in groups]
    if share_out(counts, [rows | more for rows, more in zip(fitting, coming, strict=True)]):
        return cluster.pool.zone_of(_any(coming))
    return ""


# --- the claims ------------------------------------------------------------------------------------------------------


def without(instance: Instance, *gangs: Gang) -> Instance:
    """The machine without the claims of these gangs."""
    claims = (claim for claim in instance.claims if not any(of_gang(claim, gang) for gang in gangs))
    return instance.with_(claims=tuple(claims))


def of_gang(claim: Claim, gang: Gang) -> bool:
    held = claim.run_id, claim.replica_num, claim.submission_num
    return held == (gang.run_id, gang.replica_num, gang.submission_num)


def _reserved(
    draft: Draft, gang: Gang | None, lead: Job, nodes: int, places: tuple[str, ...], arrival_deadline: Micros
) -> Gang:
    """The gang with these places, sealed if it now has all. `arrival_deadline`: when the machines that were bought must
    be there."""
    now, sealed = draft.now, len(places) == nodes
    begun = gang is not None and gang.status is GangStatus.gathering
    until = gang.until if gang is not None and begun else now + TO_SEAL
    if sealed:
        until = max(now + TO_MEET, arrival_deadline + MINUTE)
    elif arrival_deadline:
        until = max(until or 0, arrival_deadline)  # the first machine of a new cluster
    due_at = now if sealed else until
    changes: dict[str, Any] = {"places": places, "until": until, "due_at": due_at, "message": ""}
    if sealed:
        draft.save(lead.with_(reserved=True, message="", due_at=None, last_processed_at=now))
    draft.wake(f"run/{lead.run_id}")
    if gang is None:
        status = GangStatus.sealed if sealed else GangStatus.gathering
        gang = _gang(now, lead, nodes, status).with_(**changes)
        draft.save(gang)
        draft.record(EventType.created, gang)
        begin_start(draft, gang)
        return gang
    if gang.status is GangStatus.undone:
        gang = draft.move(GANG, gang, "seal" if sealed else "gather", **changes, attempt=gang.attempt + 1)
        begin_start(draft, gang)
        return gang
    if sealed:
        return draft.move(GANG, gang, "seal", **changes)
    gang = gang.with_(**changes)
    draft.save(gang)
    return gang


def _gang(now: Micros, lead: Job, nodes: int, status: GangStatus) -> Gang:
    return Gang(
        id=gang_id(lead),
        run_id=lead.run_id,
        run_name=lead.run_name,
        project_id=lead.project_id,
        replica_num=lead.replica_num,
        submission_num=lead.submission_num,
        nodes=nodes,
        status=status,
        began_at=now,
        last_processed_at=now,
    )


def _claim(draft: Draft, capacity: Capacity, item: QueuedJob, before: Instance) -> Instance:
    """Claim the whole machine. `before`: without the claims of preempted gangs."""
    blocks = tuple(range(before.total_blocks))
    claim = claim_of(item, blocks)
    if before.status is InstanceStatus.idle:
        instance = draft.move_instance(before, "claimed", claims=(claim,), idle_since=None)
    else:
        instance = before.with_(claims=(claim,), last_processed_at=draft.now)
        draft.save(instance)
    capacity.record_claim(instance, blocks)
    return instance
