"""The table of nouns: everything the control plane needs to know about each kind, declared once.

A noun's class gives its fields (and so its codec) and its kind; `store.nouns` says how it is stored. A row here adds
its state machine, its invariants, the agent to notify of changes, and, for kinds that passes process, how they are
loaded, decided and postponed, and whose plans may wake them. The engine, the linter and the executor know nouns only
through this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain.certificates import Certificate
from chalicelib.domain.closings import Closing
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gangs import Gang
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run
from chalicelib.domain.volumes import AttachmentState, Volume
from chalicelib.domain.workflows import Workflow
from chalicelib.engine.load import Loader
from chalicelib.errors import Bug
from chalicelib.machines.certificate import CERTIFICATE
from chalicelib.machines.fleet import FLEET
from chalicelib.machines.gang import GANG
from chalicelib.machines.gateway import GATEWAY
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.job import JOB
from chalicelib.machines.run import RUN
from chalicelib.machines.table import StateMachine
from chalicelib.machines.volume import VOLUME
from chalicelib.machines.workflow import WORKFLOW
from chalicelib.planning.gateways import invariants as gateway_invariants
from chalicelib.planning.gateways.certificates import conclude_certificate, decide_certificate
from chalicelib.planning.gateways.gateways import decide_gateway
from chalicelib.planning.kernel import workflow_invariants
from chalicelib.planning.kernel.lint import PlanRule, Rules, StepRule
from chalicelib.planning.kernel.plan import Outcome, Plan
from chalicelib.planning.kernel.snapshot import Snapshot
from chalicelib.planning.kernel.workflows import decide_step, decide_workflow
from chalicelib.planning.machines import invariants as machine_invariants
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.outcomes import decide_outcome
from chalicelib.planning.machines.placement_groups import decide_group
from chalicelib.planning.placing import invariants as placing_invariants
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.projects.deletion import decide_closing
from chalicelib.planning.runs import invariants as run_invariants
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.volumes import invariants as volume_invariants
from chalicelib.planning.volumes.volumes import decide_disk, decide_volume


@dataclass(frozen=True)
class Unit:
    """Something that a pass processes. Only `queue` has no noun: it is the waiting jobs of a project."""

    decide: Callable[[Any], Plan]
    woken_by: frozenset[str]  # the kinds of units whose plans may wake it
    load: Callable[[Loader, str, Micros], Snapshot | None] | None = None  # None: read page by page
    conclude: Callable[[Any, Outcome], Plan] | None = None  # what follows from an effect's outcome
    index: bool = False  # its records are in the index of its name, not in the partition


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    name: str  # as in the names of units and in events
    noun: type[Noun] | None = None
    machine: StateMachine | None = None
    unit: Unit | None = None
    steps: tuple[StepRule, ...] = ()  # invariants of one step,
    plans: tuple[PlanRule, ...] = ()  # and of a whole plan
    listeners: Callable[[Any], Iterable[str]] = field(default=lambda noun: ())  # instances whose agents are notified


class Kinds:
    """The table, passed to everything that needs it."""

    def __init__(self, rows: Iterable[Kind]) -> None:
        self._rows = {row.name: row for row in rows}
        self.units: Mapping[str, Unit] = {row.name: row.unit for row in self._rows.values() if row.unit is not None}
        self._listeners = {row.noun: row.listeners for row in self._rows.values() if row.noun is not None}
        self.rules = Rules(
            machines={row.noun: row.machine for row in self._rows.values() if row.noun and row.machine},
            wakers={name: unit.woken_by for name, unit in self.units.items()},
            steps=tuple(rule for row in self._rows.values() for rule in row.steps),
            plans=tuple(rule for row in self._rows.values() for rule in row.plans),
        )

    @property
    def rows(self) -> tuple[Kind, ...]:
        return tuple(self._rows.values())

    def with_(self, *rows: Kind) -> Kinds:
        """This table with rows added or replaced."""
        return Kinds({**self._rows, **{row.name: row for row in rows}}.values())

    def deciding(self, name: str, **changes: Any) -> Kinds:
        """This table with another `decide`, `load` or `conclude` for one unit."""
        row = self._rows[name]
        if row.unit is None:
            raise Bug(f"{name} is no unit")
        return self.with_(replace(row, unit=replace(row.unit, **changes)))

    def unit(self, name: str) -> Unit:
        found = self.units.get(name)
        if found is None:
            raise Bug(f"{name!r} is no kind of unit; there are {', '.join(self.units)}")
        return found

    def listeners(self, noun: Noun) -> Iterable[str]:
        """The instances whose agents are notified of this noun's change."""
        listeners = self._listeners.get(type(noun))
        return () if listeners is None else listeners(noun)

    def checked(self, snapshot: Snapshot, plan: Plan) -> Plan:
        """The plan, if it keeps every invariant. Otherwise raises Bug, so that none of it is committed."""
        found: Sequence[str] = self.rules.broken(snapshot, plan)
        if found:
            raise Bug("the plan breaks a rule: " + "; ".join(found))
        return plan


def _host_of(job: Job) -> Iterable[str]:
    return (job.assignment.instance_id,) if job.assignment else ()


def _agent_of(instance: Instance) -> Iterable[str]:
    """An idle machine's agent waits only for a job, whose own change notifies it, for a gateway's replica, and for the
    machine's end."""
    return () if instance.status is InstanceStatus.idle and instance.gateway is None else (instance.id,)


def _hosts_of(volume: Volume) -> Iterable[str]:
    """An agent gets a task once its volumes are attached."""
    return [each.instance_id for each in volume.attachments if each.state is AttachmentState.attached]


# In the order in which a pass processes due units.
KINDS = Kinds(
    (
        Kind(
            "queue",
            unit=Unit(decide_queue, woken_by=frozenset({"queue", "run", "instance", "volume", "closing"}), index=True),
            plans=(placing_invariants.quotas, placing_invariants.token_limits),
        ),
        Kind(
            "run",
            Run,
            RUN,
            Unit(
                decide_run,
                woken_by=frozenset({"queue", "run", "instance", "volume", "closing"}),
                load=lambda load, id, now: load.run(id, now),
            ),
            plans=(run_invariants.replica_counts,),
        ),
        Kind("gang", Gang, GANG, steps=(placing_invariants.gangs,)),
        Kind("job", Job, JOB, steps=(run_invariants.ended_jobs, placing_invariants.claims), listeners=_host_of),
        Kind(
            "instance",
            Instance,
            INSTANCE,
            Unit(
                decide_instance,
                woken_by=frozenset({"queue", "run", "instance", "fleet", "volume", "gateway", "workflow"}),
                load=lambda load, id, now: load.instance(id, now),
                conclude=decide_outcome,
            ),
            steps=(machine_invariants.watched, machine_invariants.purchases, machine_invariants.bundles),
            listeners=_agent_of,
        ),
        Kind(
            "fleet",
            Fleet,
            FLEET,
            Unit(
                decide_fleet,
                woken_by=frozenset({"instance", "fleet", "closing"}),
                load=lambda load, id, now: load.fleet(id, now),
                conclude=decide_group,
            ),
            steps=(machine_invariants.placement_groups,),
            plans=(machine_invariants.fleet_sizes,),
        ),
        Kind(
            "volume",
            Volume,
            VOLUME,
            Unit(
                decide_volume,
                woken_by=frozenset({"queue", "run", "instance", "volume", "closing"}),
                load=lambda load, id, now: load.volume(id, now),
                conclude=decide_disk,
            ),
            steps=(volume_invariants.volumes, volume_invariants.attachments),
            listeners=_hosts_of,
        ),
        Kind(
            "gateway",
            Gateway,
            GATEWAY,
            Unit(
                decide_gateway,
                woken_by=frozenset({"queue", "run", "instance", "fleet", "gateway", "workflow", "closing"}),
                load=lambda load, id, now: load.gateway(id, now),
            ),
            steps=(gateway_invariants.gateways,),
        ),
        Kind(
            "certificate",
            Certificate,
            CERTIFICATE,
            Unit(
                decide_certificate,
                woken_by=frozenset({"gateway", "certificate"}),
                load=lambda load, id, now: load.certificate(id, now),
                conclude=conclude_certificate,
            ),
            steps=(gateway_invariants.certificates,),
        ),
        Kind(
            "workflow",
            Workflow,
            WORKFLOW,
            Unit(
                decide_workflow,
                woken_by=frozenset({"instance"}),
                load=lambda load, id, now: load.workflow(id, now),
                conclude=decide_step,
            ),
            steps=(workflow_invariants.workflows,),
        ),
        Kind(
            "closing",
            Closing,
            unit=Unit(decide_closing, woken_by=frozenset(), load=lambda load, id, now: load.closing(id, now)),
        ),
    )
)
