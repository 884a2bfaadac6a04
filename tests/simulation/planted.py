"""Bugs planted on purpose, each a plausible slip in one part. A simulation that can't find them proves nothing.

Each names the invariant that it breaks, and counts as found only if that one reports it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from chalicelib.backends.accounts import Account
from chalicelib.backends.spi import Backend, Container, Owned
from chalicelib.contract.agent import SyncReply
from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gangs import Gang
from chalicelib.domain.gateways import GatewayStatus
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.volumes import AttachmentState
from chalicelib.domain.workflows import WorkflowStatus
from chalicelib.engine.effects.purchases import Purchases
from chalicelib.engine.effects.table import FAMILIES, Family
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.read import Again, Reader, has_room
from chalicelib.engine.sweep import OwnedResource, Sweeper
from chalicelib.errors import Bug
from chalicelib.planning.gateways.certificates import decide_certificate
from chalicelib.planning.gateways.gateway_machines import as_fleet
from chalicelib.planning.gateways.gateways import decide_gateway
from chalicelib.planning.gateways.snapshots import CertificateSnapshot, GatewaySnapshot
from chalicelib.planning.kernel.lint import Rules
from chalicelib.planning.kernel.plan import Outcome, Plan, Step
from chalicelib.planning.kernel.purchases import Create
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.workflows import StepDone, StepFailed, WorkflowSnapshot, decide_step
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.orphans import AccountSweep
from chalicelib.planning.machines.placement_groups import delete_unused_groups
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.planning.volumes.attachments import DiskAt
from chalicelib.planning.volumes.snapshot import VolumeSnapshot
from chalicelib.planning.volumes.volumes import decide_disk, decide_volume
from chalicelib.store import nouns
from chalicelib.usecases.agents import calls
from tests.simulation import bundles, container_gangs, containers
from tests.simulation.history import always, play
from tests.simulation.plane import INSTALL, Parts
from tests.simulation.stories import (
    STORIES,
    Story,
    clusters,
    commits,
    fleets,
    gangs,
    gateways,
    local,
    machines,
    onprem,
    orphans,
    placement_groups,
    placing,
    quotas,
    tasks,
    volumes,
)
from tests.simulation.world import Invariant, Violation


def _deciding(unit: str, decide: Callable[[Any], Plan]) -> Kinds:
    """The table with another decision, and without rules, which would catch some of these early: the history itself
    must show them."""
    kinds = KINDS.deciding(unit, decide=decide)
    kinds.rules = Rules(machines={}, wakers=kinds.rules.wakers)
    return kinds


def _concluding(unit: str, conclude: Callable[[Any, Outcome], Plan]) -> Kinds:
    kinds = KINDS.deciding(unit, conclude=conclude)
    kinds.rules = Rules(machines={}, wakers=kinds.rules.wakers)
    return kinds


def _with_saves(plan: Plan, change: Any) -> Plan:
    return replace(plan, steps=tuple(replace(step, saves=tuple(map(change, step.saves))) for step in plan.steps))


# 1. --- forgets that somebody else may still be buying --------------------------------------------------------------


def _impatient(snapshot: InstanceSnapshot) -> Plan:
    instance = snapshot.instance
    if instance.status is InstanceStatus.pending and instance.act_until is not None:
        snapshot = replace(snapshot, instance=instance.with_(act_until=snapshot.now))
    return decide_instance(snapshot)


class _Impatient(Purchases):
    def may_begin(self, instance: Instance, effect: Create, backend: Backend) -> bool:
        return instance.status is InstanceStatus.pending


# 2. --- releases a place when the job is told to end, not when it has ended -----------------------------------------


def _hasty(snapshot: RunSnapshot) -> Plan:
    plan = decide_run(snapshot)
    steps = []
    for step in plan.steps:
        saves = {nouns.key_of(noun): noun for noun in step.saves}
        for noun in step.saves:
            if isinstance(noun, Job) and noun.status is JobStatus.terminating and noun.assignment:
                key = keys.instance(noun.assignment.instance_id)
                place = saves.get(key) or snapshot.instances.get(noun.assignment.instance_id)
                if isinstance(place, Instance):
                    saves[key] = place.with_(claims=tuple(c for c in place.claims if c.job_id != noun.id))
        steps.append(replace(step, saves=tuple(saves.values())))
    return replace(plan, steps=tuple(steps))


# 3. --- keeps the last handle only ----------------------------------------------------------------------------------


class _Forgetful(Purchases):
    def checkpoint(self, instance: Instance, handles: Iterable[Handle], backend: Backend) -> Instance | None:
        last = list(handles)[-1:]
        if not last:
            return instance
        current = nouns.find(self.here.store, Instance, keys.instance(instance.id))
        if current is None or current.status is InstanceStatus.terminated:
            return None
        saved = current.with_(handles=tuple(last))
        self.here.store.commit([nouns.put(saved)])
        return saved.with_(version=current.version + 1)


# 4. --- concludes from an index that something doesn't exist --------------------------------------------------------


class _Trusting(Reader):
    def _listed(self, fleet: Fleet, again: Again) -> dict[str, Instance]:
        return {i.id: i for i in self.instances(fleet.id)}


# 5. --- applies a message that was already applied; assumes that its log has arrived --------------------------------

_FOR_EVER = itertools.count(1_000_000)


def _credulous(plane: Any, instance_id: str, credential: str, body: bytes) -> SyncReply:
    message = orjson.loads(body)
    message.update(seq=next(_FOR_EVER), boot="always the same")
    return calls.sync(plane, instance_id, credential, orjson.dumps(message))


def _hopeful(plane: Any, instance_id: str, credential: str, body: bytes) -> SyncReply:
    message = orjson.loads(body)
    message["tasks"] = [{**task, "log_end": 0} for task in message["tasks"]]
    return calls.sync(plane, instance_id, credential, orjson.dumps(message))


# 6. --- relies on being woken; relies on its first look at a machine ------------------------------------------------


def _sleepy(snapshot: RunSnapshot) -> Plan:
    plan = _with_saves(decide_run(snapshot), lambda noun: noun.with_(due_at=None) if isinstance(noun, Run) else noun)
    return replace(plan, next_wake=None)


def _careless(snapshot: InstanceSnapshot) -> Plan:
    """Drops the deadline of a machine that is being created."""

    def dropped(noun: Any) -> Any:
        waiting = isinstance(noun, Instance) and noun.status in (InstanceStatus.pending, InstanceStatus.provisioning)
        return noun.with_(due_at=None) if waiting else noun

    return replace(_with_saves(decide_instance(snapshot), dropped), next_wake=None)


# 7. --- writes the change and its history apart ---------------------------------------------------------------------


def _apart(snapshot: RunSnapshot) -> Plan:
    plan = decide_run(snapshot)
    halves = ((replace(step, saves=(), effects=(), wake=()), replace(step, events=())) for step in plan.steps)
    return replace(plan, steps=tuple(half for pair in halves for half in pair))


# 8. --- counts blocks from the first one ----------------------------------------------------------------------------


def _from_the_first(snapshot: QueueSnapshot) -> Plan:
    def moved(noun: Any) -> Any:
        if not isinstance(noun, Instance):
            return noun
        claims = (claim.with_(blocks=tuple(range(len(claim.blocks)))) for claim in noun.claims)
        return noun.with_(claims=tuple(claims))

    return _with_saves(decide_queue(snapshot), moved)


# 9. --- looks at the fleets of all projects -------------------------------------------------------------------------


class _Neighbourly(Reader):
    def fleet_views(
        self, project_id: str, hinted: Iterable[str] = (), again: Again = has_room
    ) -> tuple[FleetView, ...]:
        found = super().fleet_views(project_id, hinted, again)
        self.projects = {*getattr(self, "projects", ()), project_id}
        others = (super(_Neighbourly, self).fleet_views(other) for other in self.projects - {project_id})
        return (*found, *(view for views in others for view in views))


# 10. --- never updates a host's facts; takes any install's resources for its own ------------------------------------


def _incurious(snapshot: InstanceSnapshot) -> Plan:
    if snapshot.presence is not None and snapshot.instance.started_at is not None:
        snapshot = replace(snapshot, presence=snapshot.presence.with_(facts=None))
    return decide_instance(snapshot)


class _Greedy(Sweeper):
    def _view(self, account: Account) -> AccountSweep[OwnedResource]:
        class OwnDescription:
            facts = account.facts

            @staticmethod
            def list_owned() -> Sequence[Owned]:
                return [replace(owned, install=INSTALL) for owned in account.backend.list_owned()]

        return super()._view(Account.of(OwnDescription()))  # type: ignore[arg-type]


class _Blind(Sweeper):
    """Knows none of the owners."""

    def _found(self, kind: type[Any], wanted: Iterable[keys.Key]) -> list[Any]:
        return [] if kind is Instance else super()._found(kind, wanted)


def _hurried(snapshot: InstanceSnapshot) -> Plan:
    """Doesn't wait until a host is cleared."""
    leaving = snapshot.instance.status is InstanceStatus.terminating
    return decide_instance(replace(snapshot, instance=snapshot.instance.with_(forgotten=True)) if leaving else snapshot)


def _resigned(snapshot: WorkflowSnapshot, outcome: Outcome) -> Plan:
    """Takes what must not be given up, undoing a step or one without a limit, for made when it fails."""
    workflow = snapshot.workflow
    limited = snapshot.definition.steps[workflow.step].attempts is not None
    if isinstance(outcome, StepFailed) and (workflow.status is WorkflowStatus.undoing or not limited):
        outcome = StepDone(outcome.unit, outcome.attempt)
    return decide_step(snapshot, outcome)


# --- gangs -----------------------------------------------------------------------------------------------------------


def _one_short(snapshot: QueueSnapshot) -> Plan:
    """Seals a gang without the last of its places."""
    plan = decide_queue(snapshot)
    steps = []
    for step in plan.steps:
        last: list[Any] = [noun for noun in step.saves if isinstance(noun, Instance)][-1:]
        if any(isinstance(noun, Gang) for noun in step.saves):
            saved = (noun.with_(claims=()) if noun in last else noun for noun in step.saves)
            steps.append(replace(step, saves=tuple(saved)))
        else:
            steps.append(step)
    return replace(plan, steps=tuple(steps))


def _keeping(snapshot: RunSnapshot) -> Plan:
    """Forgets what an attempt reserved when its run ends."""
    ends = snapshot.run.status is RunStatus.terminating
    return decide_run(replace(snapshot, gangs=()) if ends else snapshot)


def _scattered(snapshot: FleetSnapshot) -> Plan:
    """Buys the machines of a cluster as those of any fleet."""
    config = snapshot.view.spec.configuration.with_(placement="any")
    view = replace(snapshot.view, spec=snapshot.view.spec.with_(configuration=config))
    return decide_fleet(replace(snapshot, view=view))


def _tidy(snapshot: FleetSnapshot) -> Plan:
    """Deletes a group as soon as the cloud shows no machine in it, though one may have been ordered."""
    plan, view = decide_fleet(snapshot), snapshot.view
    accepted = [each for each in view.instances if each.status is not InstanceStatus.pending]
    leave, _ = delete_unused_groups(view.fleet, accepted, snapshot.now)
    return replace(plan, steps=(*plan.steps, *leave))


# --- volumes ---------------------------------------------------------------------------------------------------------


def _let_loose(snapshot: VolumeSnapshot) -> Plan:
    """Takes a disk for detached because it has asked for that."""
    freed = [each for each in snapshot.volume.attachments if each.state is not AttachmentState.detaching]
    volume = snapshot.volume.with_(attachments=tuple(freed), due_at=snapshot.now)
    plan = decide_volume(replace(snapshot, volume=volume))
    return plan if volume.attachments == snapshot.volume.attachments else Plan((*plan.steps, Step((volume,))))


def _heedless(plane: Any, instance_id: str, credential: str, body: Any) -> SyncReply:
    """Doesn't read which disks a task still holds."""
    message = orjson.loads(body)
    for task in message["tasks"]:
        task.pop("held", None)
    return calls.sync(plane, instance_id, credential, message)


def _trustful(snapshot: VolumeSnapshot, outcome: Outcome) -> Plan:
    """Takes a disk for attached because that was asked for."""
    return decide_disk(
        snapshot, replace(outcome, there=True) if isinstance(outcome, DiskAt) and outcome.attaching else outcome
    )


def _unlimited(snapshot: QueueSnapshot) -> Plan:
    return decide_queue(replace(snapshot, usage=None))


# --- gateways --------------------------------------------------------------------------------------------------------


def _gone_at_once(snapshot: GatewaySnapshot) -> Plan:
    """Doesn't wait for its machines when it is deleted."""
    return decide_gateway(replace(snapshot, machines={}) if snapshot.gateway.ending else snapshot)


def _crowded(snapshot: GatewaySnapshot) -> Plan:
    """Takes hosts that carry a gateway already."""
    hosts = tuple(host.with_(gateway=None) for host in snapshot.hosts)
    return decide_gateway(replace(snapshot, hosts=hosts))


def _certified(snapshot: CertificateSnapshot) -> Plan:
    """Doesn't look whether the gateway is still there."""
    gateway = snapshot.gateway
    lasting = None if gateway is None else gateway.model_copy(update={"status": GatewayStatus.running})
    return decide_certificate(replace(snapshot, gateway=lasting))


class _Hospitable(Reader):
    """Takes the machines of gateways for those of fleets."""

    def fleet_views(
        self, project_id: str, hinted: Iterable[str] = (), again: Again = has_room
    ) -> tuple[FleetView, ...]:
        found = super().fleet_views(project_id, hinted, again)
        hosts = (
            replace(as_fleet(each), instances=tuple(self.instances(each.id))) for each in self.gateways(project_id)
        )
        return (*found, *hosts)


def _first_door(snapshot: RunSnapshot) -> Plan:
    """Takes one of a gateway's doors for all of them."""
    doors = snapshot.doors[:1]
    traffic = tuple(each for each in snapshot.traffic if each.door in doors)
    return decide_run(replace(snapshot, doors=doors, traffic=traffic) if len(snapshot.doors) > 1 else snapshot)


def _buying_with(purchases: type[Family]) -> tuple[type[Family], ...]:
    return (purchases, *(family for family in FAMILIES if family is not Purchases))


class _Refilling(Purchases):
    """Reads the secrets of a registry's login whenever it requests its container."""

    def create(self, effect: Create) -> Outcome | None:
        instance = self._find(effect)
        if instance is not None and instance.registry_login:
            self.here.store.commit([nouns.put(instance.with_(registry_login=""))])
        return super().create(effect)


class _OneByOne(Purchases):
    """Requests each container of a gang as if there were no others."""

    def request(self, instance: Instance, group: Handle | None = None, container: Container | None = None) -> Any:
        if container is not None and container.gang is not None:
            container = replace(container, gang=replace(container.gang, nodes=1))
        return super().request(instance, group, container)


class _SameGang(Purchases):
    """Takes all attempts of a gang for one."""

    def request(self, instance: Instance, group: Handle | None = None, container: Container | None = None) -> Any:
        if container is not None and container.gang is not None:
            container = replace(container, gang=replace(container.gang, token=instance.gang.partition("/")[0]))
        return super().request(instance, group, container)


# --- machines that are bought together: decides about each by itself, or gives them to nodes in any order -----------


def _on_its_own(snapshot: InstanceSnapshot) -> Plan:
    return decide_instance(replace(snapshot, bundle=()))


def _shuffled(snapshot: QueueSnapshot) -> Plan:
    """Another node gets the claim."""

    def turned(noun: Any) -> Any:
        if not isinstance(noun, Instance) or noun.bundle is None:
            return noun
        claims = (each.with_(job_num=(each.job_num + 1) % noun.offer.bundle) for each in noun.claims)
        return noun.with_(claims=tuple(claims))

    return _with_saves(decide_queue(snapshot), turned)


@dataclass(frozen=True)
class Planted:
    parts: Parts
    breaks: Invariant
    seeds: int = 60  # it must be found within this many
    stories: Sequence[type[Story]] = STORIES
    known: int = 0  # one that showed it when this was written, and is tried first: the others only if it no longer does


PLANTED: dict[str, Planted] = {
    "forgets act_until": Planted(
        Parts(kinds=_deciding("instance", _impatient), families=_buying_with(_Impatient)),
        machines.BOUGHT_ONCE,
        seeds=120,
        known=3,
    ),
    "releases a claim early": Planted(Parts(kinds=_deciding("run", _hasty)), placing.CLAIMS_AGREE, known=4),
    "drops handles": Planted(Parts(families=_buying_with(_Forgetful)), machines.HANDLES_STAY),
    "trusts the index": Planted(Parts(reader=_Trusting), fleets.FLEET_LIMIT, seeds=120, known=17),
    "applies replayed messages": Planted(Parts(sync=_credulous), tasks.TRUE_ENDS, known=1),
    "takes a log for whole": Planted(Parts(sync=_hopeful), tasks.LOGS_COMPLETE, known=1),
    "relies on being woken": Planted(Parts(kinds=_deciding("run", _sleepy)), tasks.RUNS_END, known=15),
    "drops a machine's deadline": Planted(
        Parts(kinds=_deciding("instance", _careless)), machines.PURCHASES_SETTLE, known=2
    ),
    "tells apart from the change": Planted(Parts(kinds=_deciding("run", _apart)), commits.EVENTS_MATCH, known=23),
    "counts blocks from the first": Planted(Parts(kinds=_deciding("queue", _from_the_first)), placing.BLOCKS_ONCE),
    "looks at all projects' fleets": Planted(Parts(reader=_Neighbourly), placing.PROJECTS_APART),
    "never asks a host again": Planted(Parts(kinds=_deciding("instance", _incurious)), local.FACTS_SEEN, known=5),
    "sweeps other installs too": Planted(Parts(sweeper=_Greedy), orphans.STRANGERS_STAY, known=4),
    "leaves a host as it is": Planted(Parts(kinds=_deciding("instance", _hurried)), onprem.HOSTS_CLEARED, known=1),
    "gives a workflow's step up": Planted(
        Parts(kinds=_concluding("workflow", _resigned)),
        onprem.HOSTS_CLEARED,
        known=4,
        stories=always(onprem.OnPrem),
    ),
    "seals a gang that lacks a place": Planted(Parts(kinds=_deciding("queue", _one_short)), gangs.ALL_OR_NONE),
    "scatters a cluster": Planted(Parts(kinds=_deciding("fleet", _scattered)), clusters.TOGETHER, seeds=120, known=118),
    "deletes a group too early": Planted(Parts(kinds=_deciding("fleet", _tidy)), placement_groups.USED_GROUPS_STAY),
    "keeps what was reserved": Planted(Parts(kinds=_deciding("run", _keeping)), gangs.GIVEN_BACK, known=33),
    "frees a disk that it asked to detach": Planted(
        Parts(kinds=_deciding("volume", _let_loose)), volumes.FREED_WITH_PROOF, known=5
    ),
    "ignores that a disk is held": Planted(Parts(sync=_heedless), volumes.USED_DISKS_STAY, known=1),
    "takes a disk for attached": Planted(
        Parts(kinds=_concluding("volume", _trustful)), volumes.DISKS_FIRST, known=31, stories=always(volumes.Volumes)
    ),
    "doesn't ask for the quota": Planted(Parts(kinds=_deciding("queue", _unlimited)), quotas.QUOTA_HOLDS),
    "deletes a gateway before its machines": Planted(
        Parts(kinds=_deciding("gateway", _gone_at_once)), gateways.NONE_OUTLIVES, seeds=120, known=17
    ),
    "seats two on a host": Planted(
        Parts(kinds=_deciding("gateway", _crowded)), gateways.ONE_A_HOST, seeds=120, known=65
    ),
    "keeps a certificate": Planted(
        Parts(kinds=_deciding("certificate", _certified)), gateways.NO_TRACE, seeds=120, known=17
    ),
    "asks the first door only": Planted(
        Parts(kinds=_deciding("run", _first_door)), gateways.DOORS_LET_GO, known=10, stories=always(gateways.Gateways)
    ),
    "places jobs at gateways": Planted(Parts(reader=_Hospitable), gateways.NO_JOBS_THERE, seeds=120, known=87),
    "fills in the login anew": Planted(
        Parts(families=_buying_with(_Refilling)),
        containers.SAME_REQUEST,
        known=14,
        stories=containers.STORIES_WITH_CONTAINERS,
    ),
    "starts containers one by one": Planted(
        Parts(families=_buying_with(_OneByOne)),
        container_gangs.START_TOGETHER,
        known=1,
        stories=container_gangs.CONTAINER_GANGS,
    ),
    "doesn't look at the rest of a bundle": Planted(
        Parts(kinds=_deciding("instance", _on_its_own)), bundles.END_TOGETHER, known=0, stories=bundles.OF_BUNDLES
    ),
    "shuffles a bundle's machines": Planted(
        Parts(kinds=_deciding("queue", _shuffled)), bundles.USED_TOGETHER, known=0, stories=bundles.OF_BUNDLES
    ),
    "mixes a gang's attempts": Planted(
        Parts(families=_buying_with(_SameGang)),
        container_gangs.NEW_ONES,
        known=1,
        stories=container_gangs.CONTAINER_GANGS,
    ),
    "sweeps what it doesn't know": Planted(Parts(sweeper=_Blind), machines.WANTED_STAYS),
}


@dataclass
class Found:
    seed: int | None = None  # at which its invariant was broken
    other_invariants: set[str] = field(default_factory=set)  # invariants that were broken before


def hunt(bug: Planted) -> Found:
    found = Found()
    for seed in dict.fromkeys((bug.known, *range(bug.seeds))):
        try:
            play(seed, bug.parts, bug.stories)
        except Violation as violation:
            if violation.invariant is bug.breaks:
                found.seed = seed
                return found
            found.other_invariants.add(violation.invariant.name)
        except Bug as error:  # the planted one makes the engine fail
            found.other_invariants.add(str(error))
    return found
