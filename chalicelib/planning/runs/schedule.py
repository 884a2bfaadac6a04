"""Runs with a `schedule`: they wait as `pending` for their next start, and again after it has ended.

The next start is computed when the previous one ends. So starts never overlap, and one that falls in between is
skipped. Stopping the run ends its schedule; a failure doesn't.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.specs import cron
from chalicelib.domain.specs.profiles import Schedule
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.runs.replicas import submit_all
from chalicelib.planning.runs.run_pass import RunPass

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GO_ON = (RunReason.all_jobs_done, RunReason.job_failed, RunReason.retry_limit_exceeded)


def schedule_of(spec: RunSpec) -> Schedule | None:
    """The schedule of the configuration, or else of the profile."""
    return spec.configuration.schedule or (spec.profile.schedule if spec.profile else None)


def next_start(schedule: Schedule, at: Micros) -> Micros | None:
    """The first start after `at`; None if there is none any more."""
    after = _EPOCH + timedelta(microseconds=at)
    found = [cron.next_after(expression, after, schedule.timezone or "UTC") for expression in schedule.cron]
    return min(((moment - _EPOCH) // timedelta(microseconds=1) for moment in found if moment), default=None)


def waiting_text(at: Micros) -> str:
    return f"the next start is at {_EPOCH + timedelta(microseconds=at):%Y-%m-%d %H:%M} UTC"


def start(this: RunPass) -> None:
    """Start the run at its scheduled time: submit every node of every replica anew."""
    since = this.run.resume_at or this.now
    this.run = this.draft.move_run(
        this.run, "resubmit", note="started by its schedule", resume_at=None, triggered_at=since, message=""
    )
    submit_all(this, since)


def reschedule(this: RunPass) -> bool:
    """Have the run wait for its next start instead of ending. False: there is none."""
    schedule = schedule_of(this.snapshot.run_spec)
    if schedule is None or this.run.reason not in _GO_ON:
        return False
    at = next_start(schedule, this.now)
    if at is None:
        return False
    ended = this.run.reason.value.replace("_", " ")
    this.run = this.draft.move_run(
        this.run,
        "reschedule",
        note=f"{this.run.message or ended}; {waiting_text(at)}",
        message=waiting_text(at),
        reason=None,
        resume_at=at,
        retries=(),
        fleet_id=None,
        fleet_name=None,
    )
    return True
