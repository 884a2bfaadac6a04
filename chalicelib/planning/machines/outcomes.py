"""Applies the outcomes of effects on machines. An outcome that comes too late has no consequences.

The executor only reports results. Whether a refusal is final, what an unanswered call may have left behind, and when to
try again are decided here.
"""

from __future__ import annotations

from chalicelib.domain.bundles import others
from chalicelib.domain.events import EventType
from chalicelib.domain.gateways import ADDRESS_AWAY
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Attempt, JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason
from chalicelib.errors import Bug, Unfit
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.failures import Meaning, meaning
from chalicelib.planning.kernel.plan import Failed, Outcome, Plan
from chalicelib.planning.kernel.purchases import Bought, Left, NotBought, NotDone, Seen
from chalicelib.planning.machines.bundles import first_of
from chalicelib.planning.machines.instance import InstanceEnd, InstancePass
from chalicelib.planning.machines.interruptions import NOTICE, interrupt
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.planning.matching.colocation import is_cluster
from chalicelib.planning.matching.pools import COMING
from chalicelib.planning.placing.placement_groups import lost

RECHECK_SOON: Micros = 5 * SECOND  # most machines are gone within half a minute
FREQUENT_CHECKS = 4  # after this many termination requests that counted, pauses are longer


def decide_outcome(snapshot: InstanceSnapshot, outcome: Outcome) -> Plan:
    this = _InstanceOutcome(snapshot)
    if isinstance(outcome, Bought | NotBought):
        if this.same_purchase(outcome):
            this.bought() if isinstance(outcome, Bought) else this.not_bought(outcome)
    elif isinstance(outcome, Seen | Left | NotDone):
        if outcome.epoch == snapshot.instance.epoch:
            this.conclude(outcome)
    else:
        raise Bug(f"{outcome} is no outcome of an effect on an instance")
    return this.plan()


class _InstanceOutcome(InstancePass):
    def same_purchase(self, outcome: Bought | NotBought) -> bool:
        return (outcome.epoch, outcome.act_until) == (self.instance.epoch, self.instance.act_until)

    def conclude(self, outcome: Seen | Left | NotDone) -> None:
        if isinstance(outcome, Seen):
            self.seen(outcome)
        elif isinstance(outcome, Left):
            self.left(outcome)
        else:
            self.call_failed(outcome)

    # --- bought, or not ----------------------------------------------------------------------------------------------

    def bought(self) -> None:
        if self.instance.status == InstanceStatus.terminated:
            return
        if self.instance.status != InstanceStatus.pending:
            self._update(act_until=None)  # everything is recorded, so its end needn't wait for this purchase
            return
        self.accept()
        self.draft.wake(*(f"instance/{each}" for each in others(self.instance)))
        self.draft.wake(*(f"volume/{disk}" for disk in self.instance.disks))
        if is_cluster(self.snapshot.fleet.spec):  # it may be the first one, for which the others wait
            self.draft.wake(f"fleet/{self.fleet.id}", f"queue/{self.instance.project_id}")

    def not_bought(self, failed: NotBought) -> None:
        means = meaning(failed.error)
        if self.instance.status == InstanceStatus.terminating:
            if not means.repeat:  # nothing is in flight any more, so the next pass can end it at once
                self._update(act_until=None, due_at=self.now)
                self.draft.wake(f"instance/{self.instance.id}")
            return
        if self.instance.status != InstanceStatus.pending:
            return
        again = self.now + round(max(_pause(failed, means), 1.0) * SECOND)
        if means.repeat and (self.instance.deadline is None or again < self.instance.deadline):
            found = lost(self.fleet, self.instance, self.now, self.facts) if failed.error == "Gone" else None
            if found is not None:
                self.draft.save(found)
            until = max(again, self.now + (0 if means.settled else self.facts.visibility_lag))
            if failed.error != "Throttled" or failed.message != self.instance.message:  # many may wait for their turn
                self.draft.record(EventType.repeated, self.instance, reason=failed.error, detail=failed.message[:500])
            self._update(message=failed.message, act_until=until, due_at=until)
            return
        self._refuse(failed, means)

    def _refuse(self, failed: Failed, means: Meaning) -> None:
        """The offer isn't available: the instance ends, and its jobs return to the queue to try the next one."""
        text = f"{self.instance.offer.key}: {failed.message}"[:500]
        if means.job_reason is not None:
            self._end_jobs(means.job_reason, failed.message)
        else:
            self._send_back(text, Attempt(offer_key=self.instance.offer.key, error=failed.message[:200]))
        claimed = bool(self.instance.claims)
        self.instance = self.instance.with_(claims=())
        self._leave_fleet()
        if not claimed and not self.instance.for_run and not self.instance.of_gateway:  # a gateway sees its end
            self._record_failed_offer()
        # A refusal is about this call only: an earlier one, whose response was lost, may have created something.
        first = self.instance.act_until == purchases.act_until(self.instance.created_at, self.facts)
        if self.instance.handles or means.repeat or not first:
            self.instance = self.instance if means.repeat else self.instance.with_(act_until=None)
            self._end(InstanceEnd(means.reason, text))
            return
        self.draft.wake(*(f"instance/{each}" for each in others(self.instance)))
        self.instance = self.draft.move_instance(
            self.instance,
            "refused",
            reason=means.reason,
            message=text,
            finished_at=self.now,
            act_until=None,
            due_at=None,
        )

    def _send_back(self, text: str, attempt: Attempt) -> None:
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
                self.draft.wake(*(f"volume/{disk}" for disk in self.instance.disks))
            elif job.status == JobStatus.submitted:  # a job of a gang, which is undone
                self.draft.save(job.with_(attempts=(*job.attempts, attempt), last_processed_at=self.now))
                self.draft.wake(f"run/{job.run_id}")
            elif job.status == JobStatus.terminating:
                self.draft.finish_job(job, None)

    def _end_jobs(self, reason: JobReason, message: str) -> None:
        """Nothing of them ran, so nothing has to stop."""
        for job in self.snapshot.jobs:
            if job.finished:
                continue
            ending = job if job.status == JobStatus.terminating else self.draft.end_job(job, reason, message=message)
            self.draft.finish_job(ending, None)

    def _record_failed_offer(self) -> None:
        """Record the failed offer in the fleet, because no job does."""
        tried = tuple(dict.fromkeys((*self.fleet.tried, self.instance.offer.key)))
        self.draft.save(
            self.fleet.with_(
                tried=tried,
                to_create=self.fleet.to_create + self.instance.offer.bundle,
                last_processed_at=self.now,
                due_at=self.now,
            )
        )

    # --- described --------------------------------------------------------------------------------------------------

    def seen(self, seen: Seen) -> None:
        if self._uses_its_notice() and seen.state == "gone" and not self._hidden():
            self._update(taken_back_at=self.now, due_at=self.now)  # it went before its time
            self.terminating()
        if self._leaving or self.instance.status == InstanceStatus.pending:  # its purchase is still under way
            return
        if seen.refused and self.instance.status == InstanceStatus.provisioning:
            first = first_of(self.snapshot)
            if first is None:
                self._refuse(Failed(seen.unit, seen.refused, seen.message), meaning(seen.refused))
                return
            if first.status in COMING:  # it is refused for all
                return
        if self.instance.of_gateway and self.instance.offer.is_container and self._note_address(seen):
            return  # it ran where it was reached, so only its address is away, and may come back
        own = meaning(seen.refused).job_reason is not None  # no other offer would have helped
        if own and self.instance.offer.is_container:  # it has come to an end of its own
            self._end(InstanceEnd(InstanceReason.error, seen.message))
            self.terminating()
            return
        if seen.interrupted or (seen.state == "gone" and (seen.refused or not self._hidden())):
            self._interrupt(seen)
            return
        changes = {
            name: value
            for name, value in (("hostname", seen.hostname), ("internal_ip", seen.internal_ip))
            if value and value != getattr(self.instance, name)
        }
        if changes:
            self._update(**changes)
            self.draft.wake(*(f"run/{claim.run_id}" for claim in self.instance.claims))
            if self.instance.of_gateway:
                self.draft.wake(f"gateway/{self.instance.fleet_id}")

    def _note_address(self, seen: Seen) -> bool:
        """Has a gateway's container lost its address? Says so in its message until it has one again."""
        has_ended = seen.state == "gone" and seen.refused != Unfit.__name__
        if not self.instance.hostname or has_ended or seen.interrupted:
            return False
        why = f": {seen.message}" if seen.message else ""
        message = "" if seen.hostname else f"{ADDRESS_AWAY} {self.instance.hostname} is gone{why}"
        if message != self.instance.message and (message or self.instance.message.startswith(ADDRESS_AWAY)):
            self._update(message=message)
            self.draft.wake(f"gateway/{self.instance.fleet_id}")
        return not seen.hostname

    def _hidden(self) -> bool:
        """Could the machine exist although the provider doesn't show it yet?"""
        return self._is_recent() or not self.instance.handles

    def _is_recent(self) -> bool:
        """Was it created so recently that an answer without it proves nothing? Once its agent has reported, only the
        provider's lag can hide it, or a purchase that hasn't recorded it yet."""
        instance = self.instance
        if instance.started_at is None:
            shown_by = purchases.act_until(instance.created_at, self.facts)
        else:
            shown_by = instance.started_at + self.facts.visibility_lag
        return self.now < max(shown_by, instance.act_until or 0)

    def _interrupt(self, seen: Seen) -> None:
        soonest = self.now + NOTICE
        until = max(soonest, seen.reclaim_at or 0) if seen.interrupted and seen.state != "gone" else None
        self.instance = interrupt(self.draft, self.instance, until, seen.message)
        if seen.state == "gone":
            self.instance = self.instance.with_(due_at=self.now, detach_by=self.now)
            self.terminating()  # its disk or address may be left

    # --- released ----------------------------------------------------------------------------------------------------

    def left(self, left: Left) -> None:
        """End the instance only if nothing is left and no unanswered purchase can still create something."""
        if self.instance.status != InstanceStatus.terminating:
            return
        if left.going:
            if self._is_recent():  # it may be gone, and no answer could show that
                self._discount()
            if self.instance.stop_attempts <= FREQUENT_CHECKS:
                self._postpone(self.now + RECHECK_SOON)
        elif left.open_until is not None and left.open_until > left.began:
            self._postpone(left.open_until)
        else:
            self.finish()

    def call_failed(self, failed: NotDone) -> None:
        """Record the failure once, and retry later; after a call that came too soon, as soon as the provider allows it:
        a long list may be read by several calls in a row. Nothing is wrong then, so the reason for an end stays."""
        if self.instance.status == InstanceStatus.terminated:
            return
        early = failed.error == "Throttled"
        if early:
            self._discount()
        if failed.message != self.instance.message and not (early and self._leaving):
            self._update(message=failed.message)
            self.draft.record(EventType.failed, self.instance, reason=failed.error, detail=failed.message[:500])
        pause = _pause(failed, meaning(failed.error))
        if pause:
            self._postpone(self.now + round(max(pause, 1.0) * SECOND), early=early)

    def _discount(self) -> None:
        """Not count the last termination request, which could show nothing. The first stays: it has been made."""
        if self.instance.stop_attempts > 1:
            self._update(stop_attempts=self.instance.stop_attempts - 1)

    def _postpone(self, at: Micros, *, early: bool = False) -> None:
        """`early`: even if it would be due later."""
        due = self.instance.due_at
        if due is not None and (at >= due or early or self.instance.status == InstanceStatus.terminating):
            self._update(due_at=at + 1)


def _pause(failed: Failed, means: Meaning) -> float:
    return means.retry_after if failed.retry_after is None else failed.retry_after
