"""An instance's decisions: wait for its agent, let it idle, notice that it is gone, and make sure it is released.

Information about an instance comes from its agent and its provider. The agent's part (a first message, a missed report)
is read from `Presence`; the provider's arrives as the outcome of an effect. Whatever happens, a bought machine ends in
one way: `terminating`, where the request is repeated until the provider confirms that nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from chalicelib.domain.bundles import follows, handles_for, others
from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gpu_names import sold_as
from chalicelib.domain.instances import HostFacts, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Disk, Gpu, Resources
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.workflows import Workflow, WorkflowStatus
from chalicelib.machines.instance import INSTANCE, TERMINATE_EVERY, TERMINATE_SELDOM, UNREACHABLE_LIMIT
from chalicelib.machines.table import allows
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.kernel.workflows import Definition, begin, cancel
from chalicelib.planning.machines.bundles import awaits_others, ended, first_of, in_use, staying, unaware, why_ended
from chalicelib.planning.machines.host_networks import detects, internal_address, misplaced_host, shared, subnets
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST, REMOVED, hosts_of, workflow_of
from chalicelib.planning.machines.joining import is_cleared
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.planning.matching.colocation import is_cluster
from chalicelib.planning.matching.fitting import total_blocks
from chalicelib.planning.matching.requirements import merged_fleet

DESCRIBE_EVERY: Micros = 15 * SECOND  # while a new machine's agent hasn't reported
CHECK_EVERY: Micros = MINUTE  # while a machine that has reported is silent
CHECK_ADDRESS_EVERY: Micros = 5 * MINUTE  # of a gateway's container, which its cluster may change
TO_BE_WARNED: Micros = 10 * MINUTE  # how long before a machine's scheduled end its provider is polled
TO_DETACH: Micros = 5 * MINUTE  # how long a terminating machine waits for its disks, from the end of its last job
CHECK_DISKS_EVERY: Micros = 30 * SECOND  # meanwhile; the detachment of the last disk wakes it
AWAIT_BUNDLE: Micros = MINUTE  # pause between checks of an ending machine for the others of its bundle, which wake it
AT_MINIMUM: Micros = 10 * MINUTE  # pause between passes over instances that wait for nothing, such as idle ones

_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)


def decide_instance(snapshot: InstanceSnapshot) -> Plan:
    """The next step of one instance."""
    this = InstancePass(snapshot)
    this.join_bundle()
    status = this.instance.status
    if status == InstanceStatus.pending:
        this.pending()
    elif status == InstanceStatus.provisioning:
        this.provisioning()
    elif status in (InstanceStatus.idle, InstanceStatus.busy):
        this.alive()
    if this.instance.status == InstanceStatus.terminating:
        this.terminating()
    return this.plan()


def needs_fleet_size(instance: Instance, fleet: Fleet, spec: FleetSpec, now: Micros) -> bool:
    """Does the decision depend on the number of instances in the fleet? It does for a machine that may exceed `max`, or
    that has idled long enough in a fleet with a `min`. If every pass counted them, the cost would be quadratic."""
    nodes = merged_fleet(spec).nodes
    if nodes is None or not instance.bought:
        return False
    too_many = nodes.max is not None and fleet.next_instance_num > nodes.max
    ends_at = _idle_until(instance, now)
    return too_many or (nodes.min > 0 and ends_at is not None and now >= ends_at)


def _idle_until(instance: Instance, now: Micros, others: Sequence[Instance] = ()) -> Micros | None:
    """When the instance will have idled long enough, with the others of its bundle, unless one is used before; None:
    never."""
    if instance.idle_seconds is None or any(each.claims for each in (instance, *others)):
        return None
    return max(each.idle_since or now for each in (instance, *others)) + instance.idle_seconds * SECOND


class InstanceEnd(NamedTuple):
    """Why an instance ends."""

    reason: InstanceReason
    message: str
    exclusive: bool = False  # only one instance of the fleet may end for this at a time


class InstanceVerdict(NamedTuple):
    """The result of one check of a live instance."""

    ending: InstanceEnd | None = None
    describe: Micros | None = None  # have the provider describe it; the deadline of that effect
    check_at: Micros | None = None  # when to repeat this check


class Clearing(NamedTuple):
    """How far the clearing of a departing host is, and what to do next."""

    over: bool
    cancel: tuple[Workflow, ...] = ()
    remove: bool = False  # start the workflow that removes it


class InstancePass:
    """One pass over an instance: the noun so far, and the draft of the step.

    Methods with a verb for a name change these. The others are checks, which change nothing."""

    def __init__(self, snapshot: InstanceSnapshot) -> None:
        self.snapshot, self.now, self.presence = snapshot, snapshot.now, snapshot.presence
        self.instance = snapshot.instance
        self.facts = snapshot.facts or BackendFacts(name=snapshot.instance.offer.backend)
        self.fleet, self.config = snapshot.fleet.fleet, merged_fleet(snapshot.fleet.spec)
        self.draft = Draft(snapshot.now)

    def plan(self) -> Plan:
        return Plan(() if self.draft.empty else (self.draft.step(),), next_wake=self.instance.due_at)

    def _update(self, **changes: object) -> None:
        self.instance = self.instance.with_(**changes)
        self.draft.save(self.instance)

    def _move_due(self, due_at: Micros) -> None:
        """Move the due time; writes only if the current one has passed or is too late."""
        current = self.instance.due_at
        if current is None or current <= self.now or current > due_at or self.instance is not self.snapshot.instance:
            self._update(due_at=due_at)

    def _end(self, ending: InstanceEnd) -> None:
        if ending.exclusive:  # saving the fleet makes a simultaneous end of another instance conflict
            self.draft.save(self.fleet.with_(last_processed_at=self.now))
        self.instance = self.draft.end_instance(self.instance, ending.reason, ending.message)

    @property
    def _leaving(self) -> bool:
        return self.instance.status in _LEAVING

    @property
    def _fleet_ends(self) -> bool:
        return self.fleet.deleted or self.fleet.status != "active"

    @property
    def _owner_ends(self) -> InstanceEnd:
        owner = "gateway" if self.instance.of_gateway else "fleet"
        return InstanceEnd(InstanceReason.terminated_by_user, f"its {owner} is being deleted")

    @property
    def _ends_with_fleet(self) -> bool:
        """Does it end because its fleet does? A job that was placed meanwhile runs to its end first."""
        return self._fleet_ends and not in_use(self.snapshot, self.instance)

    def join_bundle(self) -> None:
        """End with the others of its bundle, and get the handles of the first of them once it has some."""
        first, other = first_of(self.snapshot), ended(self.snapshot)
        if other is not None and not self._leaving:
            self.instance = self.instance.with_(taken_back_at=other.taken_back_at)
            self._end(InstanceEnd(*why_ended(other, self.instance)))
        elif first is not None and not self._leaving:
            if first.handles and not self.instance.handles:
                self._update(handles=handles_for(self.instance, first))
            if self.instance.status is InstanceStatus.pending and first.status is not InstanceStatus.pending:
                self.accept()

    # --- before the agent reports ------------------------------------------------------------------------------------

    def pending(self) -> None:
        if (facts := self._first_report()) is not None:
            self._join(facts)
        elif (overdue := self._overdue()) is not None:
            self._end(overdue)
        elif self.instance.host is not None and not self.instance.host.joined:
            self._add_host()
        elif follows(self.instance):  # the first of its bundle wakes it
            self._move_due(self.now + DESCRIBE_EVERY)
        elif not self.instance.bought:  # its agent wakes this; the due time is for lost wake-ups
            self._move_due(self.now + (CHECK_EVERY if self.instance.claims else AT_MINIMUM))
        elif self.instance.act_until is None or self.instance.act_until > self.now:
            self._move_due(self.instance.act_until or self.instance.deadline or self.now + AT_MINIMUM)
        elif len(self.snapshot.bundle) < len(others(self.instance)):
            self._end(InstanceEnd(InstanceReason.error, "its bundle wasn't ordered as a whole"))
        else:
            until = purchases.act_until(self.now, self.facts)
            self._update(act_until=until, due_at=until)
            self.draft.act(purchases.create(self.instance))

    def accept(self) -> None:
        """Its purchase has been made."""
        self.instance = self.draft.move_instance(
            self.instance,
            "accepted",
            note="the cloud is creating it",
            message="",
            act_until=None,
            due_at=self.now + DESCRIBE_EVERY,
        )

    def _add_host(self) -> None:
        """Set up a host: until its agent's first message, or the failure of the workflow."""
        adding = self._workflow(ADD_HOST)
        if adding is None:
            begin(self.draft, workflow_of(self.instance, ADD_HOST, self.now))
        elif adding.status is WorkflowStatus.undone:
            late = adding.reason == "timeout"
            reason = InstanceReason.provisioning_timeout if late else InstanceReason.error
            self._end(InstanceEnd(reason, adding.message))
            return
        self._move_due(self.now + AT_MINIMUM)

    def _workflow(self, definition: Definition) -> Workflow | None:
        return next((each for each in self.snapshot.workflows if each.definition == definition.name), None)

    def provisioning(self) -> None:
        if (facts := self._first_report()) is not None:
            self._join(facts)
        elif (overdue := self._overdue()) is not None:
            self._end(overdue)
        elif self.instance.due_at is None or self.instance.due_at <= self.now:
            again = self.now + (CHECK_EVERY if follows(self.instance) else DESCRIBE_EVERY)  # the first speaks for all
            self._update(due_at=again)
            self.draft.act(purchases.describe(self.instance, again, self.facts))

    def _overdue(self) -> InstanceEnd | None:
        """Why waiting for its agent ends; None: it goes on."""
        if self._ends_with_fleet:
            return self._owner_ends
        if self.instance.offer.is_container and not self.instance.claims and not self.instance.of_gateway:
            return InstanceEnd(InstanceReason.job_finished, "its job has ended")
        if self.instance.deadline is None or self.now < self.instance.deadline:
            return None
        minutes = (self.instance.deadline - self.instance.created_at) // MINUTE
        return InstanceEnd(InstanceReason.provisioning_timeout, f"its agent didn't report within {minutes} minutes")

    def _first_report(self) -> HostFacts | None:
        """The machine's facts from its agent's first message; None: it can't join yet, or any more."""
        return None if self.presence is None or self._ends_with_fleet else self.presence.facts

    def _join(self, facts: HostFacts) -> None:
        """`act_until` stays: the purchase may not have recorded all that it has created."""
        misplaced = misplaced_host(self.instance, self.fleet, self.snapshot.fleet.spec, facts)
        if misplaced:
            self._end(InstanceEnd(InstanceReason.error, misplaced))
            return
        self._narrow_networks(facts)
        changes = self._facts_changes(facts)
        note = f"its agent reports from {facts.hostname or 'the machine'}"
        if not self.instance.bought and total_blocks(self.blocks, resources_of(facts)) is None:
            has = f"{facts.cpus} CPUs" + (f" and {len(facts.gpus)} GPUs" if facts.gpus else "")
            note += f"; {has} can't be split into {self.blocks} equal blocks, so the machine stays whole"
        self.instance = self.draft.move_instance(
            self.instance,
            "joined",
            note=note,
            started_at=self.now,
            idle_since=self.now,
            deadline=None,
            **changes,
        )
        if self.instance.claims:
            self.instance = self.draft.move_instance(
                self.instance, "claimed", idle_since=None, note="a job was placed on it"
            )
        self.draft.wake(f"queue/{self.instance.project_id}", *(f"run/{claim.run_id}" for claim in self.instance.claims))
        self.draft.wake(*(f"volume/{disk}" for disk in self.instance.disks))
        self.draft.wake(*(adding.unit for adding in (self._workflow(ADD_HOST),) if adding and not adding.ended))
        self.alive()

    def _narrow_networks(self, facts: HostFacts) -> None:
        """In a cluster that detects its network: keep only those of the fleet's subnets that this host has. Of two
        hosts that join at once, one conflicts and is decided again."""
        if self.instance.host is None or not detects(self.snapshot.fleet.spec):
            return
        left = shared(self.fleet.networks, [subnets(facts)])
        if left != self.fleet.networks:
            self.fleet = self.fleet.with_(networks=left)
            self.draft.save(self.fleet)
            self.draft.wake(f"fleet/{self.fleet.id}")

    @property
    def blocks(self) -> int | Literal["auto"]:
        host = self.instance.host
        return self.config.blocks if host is None or host.blocks is None else host.blocks

    def _facts_changes(self, facts: HostFacts) -> dict[str, object]:
        """The changes from the agent's facts. A bought machine has the resources that were bought, a host those that
        its agent found. Where the containers of a task reach each other, their provider says."""
        spec = self.snapshot.fleet.spec
        clusters = self.instance.host is not None and detects(spec)
        known = "" if clusters else self.instance.internal_ip
        found = "" if self.instance.gang else internal_address(self.instance, spec, facts, self.fleet.networks)
        changes: dict[str, object] = {
            "hostname": self.instance.hostname or ("" if self.instance.of_gateway else facts.hostname),
            "internal_ip": known or found,
            "networks": subnets(facts) if clusters else (),
            "runtimes": facts.runtimes,
            "isolation": facts.isolates,
        }
        if self.instance.bought or self.instance.claims:
            return changes
        has = resources_of(facts)
        blocks = total_blocks(self.blocks, has) or 1
        offer = self.instance.offer
        kind = offer.instance.with_(resources=has)
        return {
            **changes,
            "offer": offer.with_(instance=kind, blocks=blocks, total_blocks=blocks),
            "total_blocks": blocks,
        }

    # --- alive -------------------------------------------------------------------------------------------------------

    def alive(self) -> None:
        if self._ends_with_fleet:
            self._end(self._owner_ends)
            return
        if self._removed_from_fleet and not self.instance.claims:
            self._end(InstanceEnd(InstanceReason.terminated_by_user, REMOVED))
            return
        if self.instance.status == InstanceStatus.idle and self.instance.claims:
            self.instance = self.draft.move_instance(
                self.instance, "claimed", idle_since=None, note="a job was placed on it"
            )
        elif self.instance.status == InstanceStatus.busy and not self.instance.claims:
            self.instance = self.draft.move_instance(
                self.instance, "freed", idle_since=self.now, note="its last job has ended"
            )
        self._adopt_facts()
        self._adopt_health()
        self._record_reachability()
        checks = []
        for question in (self._silence, self._surplus, self._address, self._scheduled_end):
            verdict = question()
            if verdict.describe is not None:
                self.draft.act(purchases.describe(self.instance, verdict.describe, self.facts))
            if verdict.ending is not None:
                self._end(verdict.ending)
                return
            if verdict.check_at is not None:
                checks.append(verdict.check_at)
        self._move_due(min(checks, default=self.now + AT_MINIMUM))

    @property
    def _removed_from_fleet(self) -> bool:
        """Is it a host that the fleet's configuration doesn't list any more?"""
        host = self.instance.host
        return host is not None and not host.joined and host.key not in hosts_of(self.snapshot.fleet.spec)

    def _describe(self, again: Micros) -> InstanceVerdict:
        return InstanceVerdict(describe=self.now + again, check_at=self.now + again)

    def _on_time(self, again: Micros) -> InstanceVerdict:
        """Not each time that something else wakes it."""
        if self.instance.due_at is not None and self.instance.due_at > self.now:
            return InstanceVerdict(check_at=self.instance.due_at)
        return self._describe(again)

    def _address(self) -> InstanceVerdict:
        """In a cluster other nodes need its address: if its agent doesn't know it, ask its provider. Only the provider
        knows where the world reaches a gateway, and whether a container still is there."""
        if self.instance.of_gateway:
            if not self.instance.hostname:
                return self._describe(DESCRIBE_EVERY)
            return self._on_time(CHECK_ADDRESS_EVERY) if self.instance.offer.is_container else InstanceVerdict()
        if self.instance.internal_ip or not self.instance.bought or not is_cluster(self.snapshot.fleet.spec):
            return InstanceVerdict()
        return self._describe(DESCRIBE_EVERY)

    def _scheduled_end(self) -> InstanceVerdict:
        """Ask its provider near its scheduled end, which may have been postponed."""
        ends_at = self.instance.offer.terms.ends_at
        if ends_at is None or self.now < ends_at - TO_BE_WARNED:
            return InstanceVerdict(check_at=None if ends_at is None else ends_at - TO_BE_WARNED)
        return self._on_time(CHECK_EVERY)

    def _adopt_facts(self) -> None:
        """Adopt the facts of a host that changed between two starts of its agent."""
        facts = self.presence.facts if self.presence else None
        if facts is None or self.instance.bought or self.instance.claims:
            return
        changes = {k: v for k, v in self._facts_changes(facts).items() if getattr(self.instance, k) != v}
        if changes:
            self._update(**changes)
            self.draft.record(EventType.found, self.instance, fields=tuple(sorted(changes)))
            self.draft.wake(f"queue/{self.instance.project_id}")

    def _adopt_health(self) -> None:
        """Adopt the health that the agent reports. After a failure, jobs on the machine go on, and no new ones are
        placed there until it has recovered. Only a change of status is an event: messages may contain counters."""
        found = self.presence.health if self.presence else None
        if found is None or (found.status, found.message) == (self.instance.health, self.instance.health_message):
            return
        before = self.instance.health
        self._update(health=found.status, health_message=found.message)
        if before == found.status:
            return
        self.draft.record(EventType.health, self.instance, before=before, after=found.status, detail=found.message)
        if "failure" in (before, found.status):
            self.draft.wake(f"queue/{self.instance.project_id}")

    def _record_reachability(self) -> None:
        """Record that its agent is overdue, or reports again."""
        if self.presence is None or not self.presence.seen_until:
            return
        silent = self.presence.seen_until < self.now
        if silent == self.instance.unreachable:
            return
        self._update(unreachable_since=self.now if silent else None)
        self.draft.record(EventType.unreachable if silent else EventType.reachable, self.instance)
        if not silent:
            self.draft.wake(f"queue/{self.instance.project_id}")
        self.draft.wake(*self._gateway())

    def _silence(self) -> InstanceVerdict:
        """Does the agent report in time, or has it been silent for too long?"""
        if self.presence is None or not self.presence.seen_until:
            return InstanceVerdict()
        since = self.instance.unreachable_since
        if since is None:
            return InstanceVerdict(check_at=self.presence.check_at)
        if not self.instance.bought:  # its agent wakes this; the due time is for lost wake-ups
            return InstanceVerdict(check_at=self.now + AT_MINIMUM)
        limit = since + UNREACHABLE_LIMIT
        if self.now >= limit:
            text = f"its agent hasn't reported for {UNREACHABLE_LIMIT // MINUTE} minutes"
            return InstanceVerdict(InstanceEnd(InstanceReason.unreachable, text))
        due = self.instance.due_at is None or self.instance.due_at <= self.now
        due = due or not self.snapshot.instance.unreachable
        describe = self.now + CHECK_EVERY
        return InstanceVerdict(describe=describe if due else None, check_at=min(limit, describe))

    def _gateway(self) -> Iterator[str]:
        """The unit of the gateway whose replica it carries, which shows whether the replica can be reached."""
        if self.instance.gateway is not None:
            yield f"gateway/{self.instance.gateway.gateway_id}"

    def _surplus(self) -> InstanceVerdict:
        """Does it exceed the fleet's maximum, or has it idled long enough?"""
        instance, nodes, bundle = self.instance, self.config.nodes, self.snapshot.bundle
        if instance.status != InstanceStatus.idle or not instance.bought:
            return InstanceVerdict()
        too_many = nodes is not None and nodes.max is not None and self._staying() > nodes.max
        if too_many and not in_use(self.snapshot, instance):
            text = f"the fleet may have {nodes.max if nodes else 0} instances"
            return InstanceVerdict(InstanceEnd(InstanceReason.max_instances_limit, text, exclusive=True))
        ends_at = _idle_until(instance, self.now, bundle)
        if ends_at is None or self.now < ends_at:
            return InstanceVerdict(check_at=ends_at)
        if instance.offer.is_container and not instance.of_gateway:
            return InstanceVerdict(InstanceEnd(InstanceReason.job_finished, "its job has ended"))
        least = nodes.min if nodes else 0
        if least and self._staying() - len(bundle) <= least:  # they end with it
            return InstanceVerdict(check_at=self.now + AT_MINIMUM)
        text = f"idle for {instance.idle_seconds} s"
        return InstanceVerdict(InstanceEnd(InstanceReason.idle_timeout, text, exclusive=least > 0))

    def _staying(self) -> int:
        """How many of the fleet's instances aren't ending."""
        return len(staying(self.snapshot.fleet.instances))

    # --- ending ------------------------------------------------------------------------------------------------------

    def terminating(self) -> None:
        if not self.instance.bought:
            self._release_host()
        elif awaits_others(self.snapshot):
            self.draft.wake(*(f"instance/{each.id}" for each in unaware(self.snapshot)))
            self._move_due(self.now + AWAIT_BUNDLE)
        elif follows(self.instance):
            self.finish()
        elif self._uses_its_notice():
            self._move_due(self.instance.taken_back_at or self.now)
        elif self._wait_for_disks():
            self._move_due(min(self.now + CHECK_DISKS_EVERY, self.instance.detach_by or self.now + CHECK_DISKS_EVERY))
        elif self.instance.due_at is None or self.instance.due_at <= self.now or self._waited_enough():
            pause = min(TERMINATE_EVERY * 2 ** min(self.instance.stop_attempts, 8), TERMINATE_SELDOM)
            self._update(stop_attempts=self.instance.stop_attempts + 1, due_at=self.now + pause)
            self.draft.act(purchases.terminate(self.instance, self.now + pause))

    def _uses_its_notice(self) -> bool:
        """Does it keep running because its provider reclaims it only later, so that its jobs can stop until then?"""
        until = self.instance.taken_back_at
        return bool(self.instance.claims) and until is not None and self.now < until

    def _waited_enough(self) -> bool:
        """Can it be released before it is due: have its jobs stopped before the provider reclaims it, or is the last of
        its bundle ending now?"""
        waited = self.instance.taken_back_at is not None or self.instance.bundle is not None
        return waited and self.instance.stop_attempts == 0

    def _wait_for_disks(self) -> bool:
        """Record until when it waits for its disks, and return whether it does."""
        waits, detach_by = self._detaching()
        if self.instance.detach_by != detach_by:
            self._update(detach_by=detach_by)
        return waits

    def _detaching(self) -> tuple[bool, Micros | None]:
        """Does it wait for its volumes to be detached, and until when at most (None: not known yet)? They are detached
        once no job uses them. Since they outlive the machine, it doesn't wait long after the end of its last job, and
        not at all once its provider has taken it: nothing is left that could unmount them."""
        known, taken_at = self.instance.detach_by, self.instance.taken_back_at
        if (
            not self.instance.disks
            or self.instance.offer.is_container
            or not (self.instance.handles or self.instance.started_at)
            or any(each is not None and each <= self.now for each in (known, taken_at))
        ):
            return False, known
        if users := self._disk_users():
            return any(job.kill_at is None or self.now < job.kill_at + TO_DETACH for job in users), None
        return True, self.now + TO_DETACH if known is None else known

    def _disk_users(self) -> list[Job]:
        """Jobs that may use its disks until they are killed; none if the machine is silent, because it can't stop
        any."""
        if self.presence is None or self.presence.seen_until < self.now:
            return []
        here = ((job, job.assignment) for job in self.snapshot.jobs if not job.finished)
        return [job for job, at in here if at is not None and at.instance_id == self.instance.id and at.volumes]

    def _release_host(self) -> None:
        """Release a host that wasn't bought, once its last job has ended and it is cleared."""
        clearing = Clearing(False) if self.instance.claims else self._clearing()
        for workflow in clearing.cancel:
            cancel(self.draft, workflow)
        if clearing.remove:
            begin(self.draft, workflow_of(self.instance, REMOVE_HOST, self.now))
        if clearing.over:
            self._list_as_failed()
            self.finish()
        else:
            self._move_due(self.now + MINUTE)

    def _clearing(self) -> Clearing:
        """Is the host cleared, or did a user choose not to wait for that? Otherwise, what to do next."""
        adding, removing = self._workflow(ADD_HOST), self._workflow(REMOVE_HOST)
        if self.instance.host is None:
            return Clearing(True)
        if self.instance.host.joined:
            return Clearing(is_cleared(self.instance))
        if self.instance.forgotten:
            return Clearing(True, cancel=tuple(filter(None, (adding, removing))))
        if adding is not None and not adding.ended:
            return Clearing(False, cancel=(adding,))
        if adding is not None and adding.status is WorkflowStatus.undone:
            return Clearing(True)
        return Clearing(False, remove=True) if removing is None else Clearing(removing.ended)

    def _list_as_failed(self) -> None:
        """List a host that couldn't be added until the next apply."""
        if self.instance.host is not None and self.instance.reason is not InstanceReason.terminated_by_user:
            self.fleet = self.fleet.with_(failed=(*self.fleet.failed, self.instance.id))
            self.draft.save(self.fleet)

    def finish(self) -> None:
        """End the instance, of which nothing is left."""
        if not allows(INSTANCE, self.instance.status, "gone"):
            return
        self._leave_fleet()
        if not follows(self.instance):  # the others wait for it
            self.draft.wake(*(f"instance/{each}" for each in others(self.instance)))
        self.draft.wake(f"queue/{self.instance.project_id}", *(f"run/{claim.run_id}" for claim in self.instance.claims))
        self.draft.wake(*(f"volume/{disk}" for disk in self.instance.disks))
        self.instance = self.draft.move_instance(
            self.instance, "gone", note="fully released", finished_at=self.now, act_until=None, due_at=None
        )

    def _leave_fleet(self) -> None:
        """Wake the fleet, which has one instance fewer. With a minimum, or a placement group, it also becomes due, in
        case the wake-up is lost. A gateway is woken by the change of status itself."""
        if self.instance.of_gateway:
            return
        self.draft.wake(f"fleet/{self.fleet.id}")
        least = self.config.nodes.min if self.config.nodes else 0
        waits = self.fleet.due_at is not None and self.fleet.due_at <= self.now
        if (least or self.instance.placement_group) and not waits and not self._fleet_ends:
            paused = None if least else self.fleet.paused_until
            self.draft.save(self.fleet.with_(due_at=self.now, paused_until=paused))


def resources_of(facts: HostFacts) -> Resources:
    """A host's resources as its agent found them."""
    return Resources(
        cpus=facts.cpus,
        memory_mib=facts.memory_mib,
        gpus=tuple(Gpu(name=sold_as(gpu.name), memory_mib=gpu.memory_mib, vendor=gpu.vendor) for gpu in facts.gpus),
        disk=Disk(size_mib=facts.disk_mib),
        cpu_arch=facts.arch,
    )
