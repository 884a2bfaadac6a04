"""`sync`: the one call an agent makes. What it reports goes up into jobs, what it is to run comes down.

A call reads two records of the instance and one a job that holds a place there, all by key, so a quiet call costs a
millisecond and writes nothing. What a report changes is committed in one go with its events and the places it frees,
under the versions that were read; a conflict means to read again, and a report that says nothing new then is no harm.

Two messages of one agent may be under way at a time, and old ones may come back: whatever isn't newer than the last
message that changed something (`Presence.seq`, for each agent process) is answered, not applied.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.errors import Conflict, Invalid, Refused
from chalicelib.planning.transitions import Draft
from chalicelib.store import keys, nouns
from chalicelib.store.port import MAX_CHANGES, Change
from chalicelib.usecases.agent_credentials import Entry, admit
from chalicelib.usecases.agent_logs import take_logs
from chalicelib.usecases.agent_message import Message, TaskReport, read_message
from chalicelib.usecases.agent_reports import Fold, stop_word
from chalicelib.usecases.agent_tasks import task_of
from chalicelib.usecases.context import Plane
from chalicelib.usecases.metrics import metric_puts

log = logging.getLogger(__name__)

ATTEMPTS = 8
JOBS_A_COMMIT = 15  # a job that starts and ends in one message takes five changes
PAST_BOOTS = 8
_STEADY_AFTER = 5 * MINUTE
_STEADY_SYNC = 5.0  # times the fast pace: between calls for five minutes after the last change, where they are paid for


def sync(plane: Plane, instance_id: str, credential: str, body: bytes | dict[str, Any]) -> dict[str, Any]:
    """The answer to one message of this instance's agent."""
    message = read_message(body)
    if message.instance != instance_id:
        raise Invalid("The message speaks of another instance than the one that sends it")
    return _exchange(plane, credential, message)


def take(plane: Plane, credential: str, body: bytes) -> dict[str, Any]:
    """The answer to a message that says itself which instance it is from."""
    return _exchange(plane, credential, read_message(body))


def _exchange(plane: Plane, credential: str, message: Message) -> dict[str, Any]:
    """Raises Forbidden, Invalid, or StorageFull, after which the agent keeps what it has."""
    for _ in range(ATTEMPTS):
        try:
            return _Exchange(plane, message).answer(credential)
        except Conflict as conflict:
            log.debug("sync of %s lost a race for %s; reading again", message.instance, conflict.key)
    raise Refused("The records of this instance are changing too fast.", hint="Try again.")


def has_news(answer: Mapping[str, Any]) -> bool:
    """Does an answer hold anything its agent has to act upon? A long poll waits while it doesn't."""
    return bool(answer.get("news"))


@dataclass
class _Exchange:
    """One attempt at one message, from a fresh look at the store."""

    plane: Plane
    message: Message
    now: Micros = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)  # bytes of log held, by job
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)  # of tasks the agent hasn't listed
    unfinished: bool = False  # more reports than one commit takes

    def answer(self, credential: str) -> dict[str, Any]:
        self.now = self.plane.clock.now()
        found = self.plane.store.get_many([keys.instance(self.message.instance), keys.presence(self.message.instance)])
        instance = None if found[0] is None else nouns.read(Instance, found[0])
        known = None if found[1] is None else nouns.read(Presence, found[1])
        entry = admit(self.plane, instance, known, credential, self.message.boot)
        assert instance is not None, "admit lets nobody in for an instance that isn't there"
        if instance.status is InstanceStatus.terminated:
            return {"seq": self.message.seq, "error": "gone", "tasks": [], "logs": [], "next_sync_in": 60, "news": True}
        self._load(instance)
        after, draft = self._fold(instance, entry, repeated=_repeated(entry.presence, self.message))
        self._commit(entry, draft, known)
        self._wake(instance, known, draft)
        return self._answer(after, entry)

    def _load(self, instance: Instance) -> None:
        claims = {c.job_id: keys.job(c.run_id, c.replica_num, c.job_num, c.submission_num) for c in instance.claims}
        found = nouns.find_many(self.plane.store, Job, list(claims.values())) if claims else []
        self.jobs = {job.id: job for job in found if job is not None and job.id in claims}

    # --- up -----------------------------------------------------------------------------------------------------------

    def _fold(self, instance: Instance, entry: Entry, *, repeated: bool) -> tuple[Instance, Draft]:
        """What the message comes to. Logs are placed by offset, so a repeat of them is harmless."""
        draft = Draft(self.now)
        fold = Fold(draft, instance)
        self.jobs, self.ends = take_logs(self.plane, self.message, self.jobs, draft)
        reports = {task.id: task for task in self.message.tasks}
        if not repeated:
            self._note_strangers(reports)
        changed = 0
        for job_id, job in list(self.jobs.items()):
            if changed >= JOBS_A_COMMIT:
                self.unfinished = True
                break
            after = job if repeated else fold.report(job, reports.get(job_id), self._end_of(job, reports.get(job_id)))
            if after.status is JobStatus.provisioning and job_id not in reports and not _joining(instance):
                after = self._prepare(fold, after)
            changed += after is not job
            self.jobs[job_id] = after
        return fold.instance, draft

    def _end_of(self, job: Job, report: TaskReport | None) -> int:
        """Bytes of the job's log held here; asked for only where it decides."""
        if job.id not in self.ends and report is not None and report.state == "exited":
            self.ends[job.id] = self.plane.logs.end(job.project_id, job.id)
        return self.ends.get(job.id, job.log_end)

    def _prepare(self, fold: Fold, job: Job) -> Job:
        try:
            self.specs[job.id] = task_of(self.plane, job, fold.instance)
        except Refused as refused:  # a secret that is missing, or that doesn't open
            return fold.end(job, JobReason.terminated_by_server, str(refused), 0)
        return job

    def _note_strangers(self, reports: Mapping[str, TaskReport]) -> None:
        """Note what is said of tasks that have no place here, but for those that ended and wait to be removed."""
        going = {task.id for task in reports.values() if task.state == "exited"}
        said = {*reports, *(chunk.task for chunk in self.message.logs), *(point.task for point in self.message.metrics)}
        for task in sorted(said - self.jobs.keys() - going):
            log.info("instance %s speaks of task %.40r, which has no place there", self.message.instance, task)

    def _commit(self, entry: Entry, draft: Draft, known: Presence | None) -> None:
        step = draft.step()
        changes: list[Change] = [nouns.put(noun) for noun in (*step.saves, *step.events)]
        presence = self._presence(entry, changed=bool(changes))
        if presence != known:
            changes.append(nouns.put(presence))
        changes += metric_puts(self.message.metrics, self.jobs, self.now)
        for start in range(0, len(changes), MAX_CHANGES):  # all but metrics fit the first
            self.plane.store.commit(changes[start : start + MAX_CHANGES])

    def _presence(self, entry: Entry, *, changed: bool) -> Presence:
        """The agent's record after this message: written when something changed, and to renew its promise."""
        known, message = entry.presence, self.message
        repeated = _repeated(known, message)
        facts = message.facts or known.facts
        news = changed or entry.credential or facts != known.facts or (message.boot != known.boot and not repeated)
        if not news and self.now < known.last_seen + self._period():
            return known
        past = known.past_boots
        if message.boot != known.boot and not repeated and known.boot:
            past = (known.boot, *past)[:PAST_BOOTS]
        return known.with_(
            boot=known.boot if repeated else message.boot,
            seq=known.seq if repeated else message.seq,
            past_boots=past,
            facts=facts,
            agent_version=message.agent or known.agent_version,
            last_seen=self.now,
            seen_until=self.now + self._period() + round(max(message.wait, self._slowest()) * SECOND),
        )

    def _period(self) -> Micros:
        """How often a quiet agent's presence is written: rarely where a write is paid for."""
        return 5 * MINUTE if self.plane.sync_fast else 30 * SECOND

    def _slowest(self) -> float:
        return self.plane.sync_slow if self.plane.sync_fast else 30.0

    def _wake(self, instance: Instance, known: Presence | None, draft: Draft) -> None:
        units = dict.fromkeys(draft.step().wake)
        if (
            _joining(instance)
            or instance.unreachable
            or (self.message.facts and (known is None or known.facts != self.message.facts))
        ):
            units[f"instance/{instance.id}"] = None
        if instance.unreachable:
            units |= dict.fromkeys(f"run/{claim.run_id}" for claim in instance.claims)
        if units:
            self.plane.wake(units)

    # --- down ---------------------------------------------------------------------------------------------------------

    def _answer(self, instance: Instance, entry: Entry) -> dict[str, Any]:
        reports = {task.id: task for task in self.message.tasks}
        tasks = [told for job in self.jobs.values() if (told := self._wanted(job, reports.get(job.id))) is not None]
        tasks += [{"id": task_id, "want": "remove"} for task_id in reports if task_id not in self.jobs]
        answer: dict[str, Any] = {
            "seq": self.message.seq,
            "tasks": tasks,
            "logs": [{"task": job_id, "offset": end} for job_id, end in self.ends.items()],
            "next_sync_in": self._next(instance),
            "log_every": self.plane.sync_fast,
        }
        if entry.credential:
            answer["credential"] = entry.credential
        asked = any(task["want"] != "run" or "spec" in task for task in tasks)
        answer["news"] = asked or self.unfinished or bool(entry.credential or self.message.logs)
        return answer

    def _wanted(self, job: Job, report: TaskReport | None) -> dict[str, Any] | None:
        if job.finished:
            return None if report is None else {"id": job.id, "want": "remove"}
        if job.status is JobStatus.terminating:
            if report is None:
                return {"id": job.id, "want": "abort"}  # it may be on its way to the agent, in another answer
            return None if report.state == "exited" else {"id": job.id, **stop_word(job, self.now)}
        if job.status is JobStatus.submitted:
            return None if report is None else {"id": job.id, "want": "remove"}
        if (spec := self.specs.get(job.id)) is not None:
            return {"id": job.id, "want": "run", "spec": spec}
        unsent = report is None and job.status is JobStatus.provisioning  # until its machine has joined
        return None if unsent else {"id": job.id, "want": "run"}

    def _next(self, instance: Instance) -> float:
        plane = self.plane
        if not plane.sync_fast:
            return 0.0  # the next call waits at the server
        jobs: Sequence[Job] = [job for job in self.jobs.values() if not job.finished]
        if self.unfinished or _joining(instance) or instance.status is InstanceStatus.terminating:
            return plane.sync_fast
        if any(job.status is not JobStatus.running for job in jobs):
            return plane.sync_fast
        last = max((at for at in (instance.idle_since, *(job.running_at for job in jobs)) if at), default=0)
        return _STEADY_SYNC * plane.sync_fast if self.now - last < _STEADY_AFTER else plane.sync_slow


def _joining(instance: Instance) -> bool:
    """Is what this machine found on itself still to be looked at? Jobs are sent once that is done: their environment
    names addresses, and their history reads in the order in which things happened."""
    return instance.status in (InstanceStatus.pending, InstanceStatus.provisioning)


def _repeated(known: Presence, message: Message) -> bool:
    """Was this message, or a later one of the same agent process, taken already?"""
    return message.boot in known.past_boots or (message.boot == known.boot and message.seq <= known.seq)
