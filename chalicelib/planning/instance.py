"""An instance's decisions: wait for its agent, let it idle, notice that it is gone, give it back until that is certain.

An instance is its agent's word and its cloud's word. The agent's (a first message, a missed promise) is read from
`Presence`; the cloud's comes as the outcome of an effect. Whatever happens, a bought machine leaves by one door:
`terminating`, in which the cloud is asked again and again until it says that nothing is left.
"""

from __future__ import annotations

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import HostFacts, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Attempt, JobStatus
from chalicelib.domain.offers import Disk, Gpu, Resources
from chalicelib.domain.reasons import InstanceReason
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.table import allows
from chalicelib.planning.combine import merged_fleet
from chalicelib.planning.fitting import total_blocks
from chalicelib.planning.plan import (
    Create,
    Created,
    CreateFailed,
    Describe,
    Described,
    Ended,
    EndFailed,
    Outcome,
    Plan,
    Terminate,
)
from chalicelib.planning.snapshots import InstanceSnapshot
from chalicelib.planning.transitions import Draft

DESCRIBE_EVERY: Micros = 15 * SECOND  # while a new machine's agent isn't heard
CHECK_EVERY: Micros = MINUTE  # while a machine that was heard is silent
TERMINATE_EVERY: Micros = 5 * SECOND  # doubled with every attempt up to
TERMINATE_SELDOM: Micros = 5 * MINUTE
UNREACHABLE_LIMIT: Micros = 20 * MINUTE
AT_MINIMUM: Micros = 10 * MINUTE  # what nothing is expected of, as an idle instance that its fleet keeps

# What a failed purchase is worth repeating for: nothing is known to be wrong with the offer. All others are refusals.
REPEATABLE = frozenset({"Transient", "Throttled"})
_REASONS = {"InsufficientCapacity": InstanceReason.no_offers, "QuotaExceeded": InstanceReason.no_offers}


def decide_instance(snapshot: InstanceSnapshot) -> Plan:
    """The next step of one instance."""
    look = _Look(snapshot)
    status = snapshot.instance.status
    if status == InstanceStatus.pending:
        look.pending()
    elif status == InstanceStatus.provisioning:
        look.provisioning()
    elif status in (InstanceStatus.idle, InstanceStatus.busy):
        look.joined()
    if look.instance.status == InstanceStatus.terminating:
        look.terminating()
    return look.plan()


def decide_outcome(snapshot: InstanceSnapshot, outcome: Outcome) -> Plan:
    """What follows from what an effect came to. An outcome that comes too late to matter follows nothing."""
    look = _Look(snapshot)
    if isinstance(outcome, Created):
        look.created()
    elif isinstance(outcome, CreateFailed):
        look.create_failed(outcome)
    elif isinstance(outcome, Described):
        look.described(outcome)
    elif isinstance(outcome, Ended):
        look.ended()
    else:
        look.end_failed(outcome)
    return look.plan()


class _Look:
    def __init__(self, snapshot: InstanceSnapshot) -> None:
        self.snapshot, self.now, self.presence = snapshot, snapshot.now, snapshot.presence
        self.instance = snapshot.instance
        self.facts = snapshot.facts or BackendFacts(name=snapshot.instance.offer.backend)
        self.fleet, self.config = snapshot.fleet.fleet, merged_fleet(snapshot.fleet.spec)
        self.draft = Draft(snapshot.now)

    def plan(self) -> Plan:
        return Plan(() if self.draft.empty else (self.draft.step(),), next_wake=self.instance.due_at)

    def _keep(self, **changes: object) -> None:
        self.instance = self.instance.with_(**changes)
        self.draft.save(self.instance)

    def _look_again(self, due_at: Micros | None) -> None:
        """Moves the deadline on, and writes only when it must: when it has passed, or is too late."""
        current = self.instance.due_at
        if due_at is None:
            if current is not None:
                self._keep(due_at=None)
        elif current is None or current <= self.now or current > due_at or self.instance is not self.snapshot.instance:
            self._keep(due_at=due_at)

    def _end(self, reason: InstanceReason, message: str = "") -> None:
        self.instance = self.draft.end_instance(self.instance, reason, message)

    @property
    def _leaving(self) -> bool:
        return self.instance.status in (InstanceStatus.terminating, InstanceStatus.terminated)

    @property
    def _fleet_ends(self) -> bool:
        return self.fleet.deleted or self.fleet.status != "active"

    # --- before the agent is heard -----------------------------------------------------------------------------------

    def pending(self) -> None:
        if self._joined():
            return
        if self._overdue():
            return
        if not self.instance.bought:  # its agent's first word wakes this; should that be lost, look again
            self._look_again(self.now + (CHECK_EVERY if self.instance.claims else AT_MINIMUM))
        elif self.instance.act_until is None or self.instance.act_until > self.now:
            self._look_again(self.instance.act_until or self.instance.deadline)
        else:
            until = self.now + self.facts.create_timeout + self.facts.visibility_lag
            self._keep(act_until=until, due_at=until)
            self.draft.act(Create(self.instance.id))

    def provisioning(self) -> None:
        if self._joined() or self._overdue():
            return
        if self.instance.due_at is None or self.instance.due_at <= self.now:
            self._keep(due_at=self.now + DESCRIBE_EVERY)
            self.draft.act(Describe(self.instance.id))

    def _overdue(self) -> bool:
        if self._fleet_ends:
            self._end(InstanceReason.terminated_by_user, "its fleet is being deleted")
        elif self.instance.deadline is not None and self.now >= self.instance.deadline:
            minutes = (self.instance.deadline - self.instance.created_at) // MINUTE
            self._end(InstanceReason.provisioning_timeout, f"its agent wasn't heard of within {minutes} minutes")
        return self._leaving

    def _joined(self) -> bool:
        """The agent's first word, with what it found on its machine."""
        facts = self.presence.facts if self.presence else None
        if facts is None or self._fleet_ends:
            return False
        changes = self._found(facts)
        note = f"its agent reports from {facts.hostname or 'the machine'}"
        if not self.instance.bought and total_blocks(self.config.blocks, resources_of(facts)) is None:
            has = f"{facts.cpus} CPUs" + (f" and {len(facts.gpus)} GPUs" if facts.gpus else "")
            note += f"; {has} can't be cut into {self.config.blocks} equal blocks, so it stays whole"
        self.instance = self.draft.move_instance(
            self.instance,
            "joined",
            note=note,
            started_at=self.now,
            idle_since=self.now,
            act_until=None,
            deadline=None,
            due_at=None,
            **changes,
        )
        if self.instance.claims:
            self.instance = self.draft.move_instance(
                self.instance, "claimed", idle_since=None, note="a job waits for it"
            )
        self.draft.wake(f"queue/{self.instance.project_id}", *(f"run/{claim.run_id}" for claim in self.instance.claims))
        self.joined()
        return True

    def _found(self, facts: HostFacts) -> dict[str, object]:
        """What the instance learns from its agent. A bought machine is what was bought; a host is what it is."""
        changes: dict[str, object] = {
            "hostname": self.instance.hostname or facts.hostname,
            "internal_ip": self.instance.internal_ip or next(iter(facts.addresses), ""),
            "runtimes": facts.runtimes,
            "gpu_driver": next((gpu.driver for gpu in facts.gpus if gpu.driver), None),
        }
        if self.instance.bought or self.instance.claims:
            return changes
        has = resources_of(facts)
        blocks = total_blocks(self.config.blocks, has) or 1
        offer = self.instance.offer
        kind = offer.instance.with_(resources=has)
        return {
            **changes,
            "offer": offer.with_(instance=kind, blocks=blocks, total_blocks=blocks),
            "total_blocks": blocks,
        }

    # --- alive -------------------------------------------------------------------------------------------------------

    def joined(self) -> None:
        if self._fleet_ends:
            self._end(InstanceReason.terminated_by_user, "its fleet is being deleted")
            return
        if self.instance.status == InstanceStatus.idle and self.instance.claims:
            self.instance = self.draft.move_instance(
                self.instance, "claimed", idle_since=None, note="a job waits for it"
            )
        elif self.instance.status == InstanceStatus.busy and not self.instance.claims:
            self.instance = self.draft.move_instance(
                self.instance, "freed", idle_since=self.now, note="no job is left on it"
            )
        self._refresh()
        silent = self._watch()
        if self._leaving:
            return
        rested = self._rest()
        if not self._leaving:
            self._look_again(min((at for at in (silent, rested) if at is not None), default=None))

    def _refresh(self) -> None:
        """A host that was changed between two starts of its agent is what it is now."""
        facts = self.presence.facts if self.presence else None
        if facts is None or self.instance.bought or self.instance.claims:
            return
        changes = {k: v for k, v in self._found(facts).items() if getattr(self.instance, k) != v}
        if changes:
            self._keep(**changes)
            self.draft.tell("found changed: " + ", ".join(sorted(changes)).replace("_", " "), self.instance)
            self.draft.wake(f"queue/{self.instance.project_id}")

    def _watch(self) -> Micros | None:
        """Is the agent keeping its promise? Returns when to look next."""
        if self.presence is None or not self.presence.seen_until:
            return None
        if self.presence.seen_until >= self.now:
            if self.instance.unreachable:
                self._keep(unreachable=False, unreachable_since=None)
                self.draft.tell("reachable again", self.instance)
                self.draft.wake(f"queue/{self.instance.project_id}")
            return self.presence.seen_until + 1
        if not self.instance.unreachable:
            self._keep(unreachable=True, unreachable_since=self.now)
            self.draft.tell("unreachable: its agent didn't report when it should have", self.instance)
        if not self.instance.bought:
            return self.now + AT_MINIMUM  # its agent's next word wakes this; should that be lost, look again
        since = self.instance.unreachable_since or self.now
        if self.now >= since + UNREACHABLE_LIMIT:
            self._end(InstanceReason.unreachable, f"its agent was silent for {UNREACHABLE_LIMIT // MINUTE} minutes")
            return None
        if self.instance.due_at is None or self.instance.due_at <= self.now or not self.snapshot.instance.unreachable:
            self.draft.act(Describe(self.instance.id))
        return min(since + UNREACHABLE_LIMIT, self.now + CHECK_EVERY)

    def _rest(self) -> Micros | None:
        """Has it idled long enough? Returns when to look next."""
        instance = self.instance
        if instance.status != InstanceStatus.idle or not instance.bought or instance.idle_seconds is None:
            return None
        ends_at = (instance.idle_since or instance.created_at) + instance.idle_seconds * SECOND
        if self.now < ends_at:
            return ends_at
        if not self.facts.vm:
            self._end(InstanceReason.job_finished, "it is good for one job")
            return None
        least = self.config.nodes.min if self.config.nodes else 0
        if self._staying() <= least:
            return self.now + AT_MINIMUM
        if least:  # of two that end at once, one must see the other: the fleet's version tells them apart
            self.draft.save(self.fleet.with_(last_processed_at=self.now))
        self._end(InstanceReason.idle_timeout, f"idle for {instance.idle_seconds} s")
        return None

    def _staying(self) -> int:
        """How many of the fleet's instances aren't on their way out."""
        leaving = (InstanceStatus.terminating, InstanceStatus.terminated)
        return sum(instance.status not in leaving for instance in self.snapshot.fleet.instances)

    # --- the way out -------------------------------------------------------------------------------------------------

    def terminating(self) -> None:
        if not self.instance.bought:
            self._let_go()
        elif self.instance.due_at is None or self.instance.due_at <= self.now:
            pause = min(TERMINATE_EVERY * 2 ** min(self.instance.stop_attempts, 8), TERMINATE_SELDOM)
            self._keep(stop_attempts=self.instance.stop_attempts + 1, due_at=self.now + pause)
            self.draft.act(Terminate(self.instance.id))

    def _let_go(self) -> None:
        """A host that isn't ours: it has left when its last job has."""
        if not self.instance.claims:
            self.ended()
        else:
            self._look_again(self.now + MINUTE)

    def ended(self) -> None:
        if not allows(INSTANCE, self.instance.status, "gone"):
            return
        self.draft.wake(f"fleet/{self.fleet.id}", f"queue/{self.instance.project_id}")
        self.draft.wake(*(f"run/{claim.run_id}" for claim in self.instance.claims))
        self.instance = self.draft.move_instance(
            self.instance, "gone", note="nothing of it is left", finished_at=self.now, act_until=None, due_at=None
        )

    def end_failed(self, outcome: EndFailed) -> None:
        """Said once in the log, and asked again later."""
        if self.instance.status == InstanceStatus.terminated:
            return
        going = outcome.error == "StillGoing"
        if not going and outcome.message != self.instance.message:
            self._keep(message=outcome.message)
            self.draft.tell(f"{outcome.error}: {outcome.message}"[:500], self.instance)
        if outcome.retry_after and self.instance.due_at is not None:
            self._look_again_after(outcome.retry_after)

    def _look_again_after(self, seconds: float) -> None:
        at = self.now + round(seconds * SECOND) + 1
        if self.instance.due_at is not None and (at > self.instance.due_at or self.instance.status == "terminating"):
            self._keep(due_at=at)

    # --- the purchase ------------------------------------------------------------------------------------------------

    def created(self) -> None:
        if self.instance.status != InstanceStatus.pending:
            return
        self.instance = self.draft.move_instance(
            self.instance,
            "accepted",
            note="the cloud is making it",
            message="",
            act_until=None,
            due_at=self.now + DESCRIBE_EVERY,
        )

    def create_failed(self, failed: CreateFailed) -> None:
        if self.instance.status == InstanceStatus.terminating:
            if failed.error not in REPEATABLE:  # nothing is under way any more: the next look may end it at once
                self._keep(act_until=None, due_at=self.now)
                self.draft.wake(f"instance/{self.instance.id}")
            return
        if self.instance.status != InstanceStatus.pending:
            return
        again = self.now + round(max(failed.retry_after, 1.0) * SECOND)
        if failed.error in REPEATABLE and (self.instance.deadline is None or again < self.instance.deadline):
            lag = self.facts.visibility_lag if failed.error == "Transient" else 0
            until = max(again, self.now + lag)
            self._keep(message=failed.message, act_until=until, due_at=until)
            self.draft.tell(f"buying it failed and is repeated: {failed.message}"[:500], self.instance)
            return
        self._refuse(failed)

    def _refuse(self, failed: CreateFailed) -> None:
        """This offer can't be had. The jobs go back to the queue to try the next one; the instance ends."""
        reason = _REASONS.get(failed.error, InstanceReason.error)
        text = f"{self.instance.offer.key}: {failed.message}"[:500]
        attempt = Attempt(offer_key=self.instance.offer.key, error=failed.message[:200])
        for job in self.snapshot.jobs:
            if job.status == JobStatus.provisioning:
                self.draft.move_job(
                    job,
                    "requeue",
                    note=text,
                    assignment=None,
                    provisioned_at=None,
                    attempts=(*job.attempts, attempt),
                    due_at=self.now,
                )
                self.draft.wake(f"queue/{job.project_id}", f"run/{job.run_id}")
            elif job.status == JobStatus.terminating:
                self.draft.finish_job(job, None)
        claimed = bool(self.instance.claims)
        self.instance = self.instance.with_(claims=())
        if not claimed:
            self._remember_for_fleet()
        self.draft.wake(f"fleet/{self.fleet.id}")
        # A refusal speaks of this call only: an earlier one, whose answer was lost, may have made something.
        first = (
            self.instance.act_until == self.instance.created_at + self.facts.create_timeout + self.facts.visibility_lag
        )
        settled = failed.error not in REPEATABLE
        if self.instance.handles or not settled or not first:
            self.instance = self.instance.with_(act_until=None) if settled else self.instance
            self._end(reason, text)
            return
        self.instance = self.draft.move_instance(
            self.instance, "refused", reason=reason, message=text, finished_at=self.now, act_until=None, due_at=None
        )

    def _remember_for_fleet(self) -> None:
        """No job remembers that this offer failed, so the fleet does."""
        tried = tuple(dict.fromkeys((*self.fleet.tried, self.instance.offer.key)))
        self.draft.save(
            self.fleet.with_(
                tried=tried, to_create=self.fleet.to_create + 1, last_processed_at=self.now, due_at=self.now
            )
        )

    def described(self, seen: Described) -> None:
        if self._leaving:
            return
        if seen.state == "gone" or seen.interrupted:
            self._taken_back(seen)
            return
        changes = {
            name: value
            for name, value in (("hostname", seen.hostname), ("internal_ip", seen.internal_ip))
            if value and value != getattr(self.instance, name)
        }
        if changes:
            self._keep(**changes)

    def _taken_back(self, seen: Described) -> None:
        spot = self.instance.offer.instance.resources.spot
        text = "the cloud takes the spot machine back" if spot else "the cloud doesn't know it any more"
        self._end(InstanceReason.error, text)
        if seen.state == "gone":
            self.instance = self.instance.with_(due_at=self.now)
            self.terminating()  # what belongs to it, a disk or an address, may be left


def resources_of(facts: HostFacts) -> Resources:
    """A host's resources as its agent found them."""
    return Resources(
        cpus=facts.cpus,
        memory_mib=facts.memory_mib,
        gpus=tuple(Gpu(name=gpu.name, memory_mib=gpu.memory_mib, vendor=gpu.vendor) for gpu in facts.gpus),
        disk=Disk(size_mib=facts.disk_mib),
        cpu_arch=facts.arch,
    )
