"""`sync`, the one call that an agent makes: its report updates jobs, and the response says what to run.

A call reads the instance with its presence, and each job with a claim there, all by key, so a quiet call costs a
millisecond and writes nothing. The changes of a report are committed together with their events and the claims they
release, under the versions that were read. After a conflict everything is read again; applying a report twice is
harmless.

Two messages of one agent may be in flight, and old ones may be replayed. So each record knows the last message that
changed it, by agent process and number (`Presence.seq`, `Job.told_by`), and one that isn't newer doesn't change it
again. A job has a number of its own so that a report that only changes jobs needn't write the presence as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.keys import Key
from chalicelib.domain.leases import Epoch
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.reports import TaskReport
from chalicelib.domain.restorations import Met
from chalicelib.domain.retention import Retention
from chalicelib.domain.runs import Run
from chalicelib.domain.volumes import Volume
from chalicelib.engine.log_context import unit_context
from chalicelib.engine.ports import Hold
from chalicelib.errors import Bug, Conflict, Forbidden, Invalid, Refused
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.joining import should_leave
from chalicelib.planning.placing.run_progress import follow
from chalicelib.planning.runs.agent_reports import ReportFold, stop_order
from chalicelib.planning.runs.sole_job import finish
from chalicelib.planning.volumes.attachments import disks_of, with_hold
from chalicelib.store import nouns
from chalicelib.store.port import MAX_CHANGES, Change, Put, Record
from chalicelib.usecases.agent_message import AgentMessage, read_message
from chalicelib.usecases.agents import gateway_replicas, stream_orders
from chalicelib.usecases.agents.credentials import Admission, admit, outlived
from chalicelib.usecases.agents.logs import UploadPorts, take_chunks, take_logs
from chalicelib.usecases.agents.tasks import TaskPorts, task_of
from chalicelib.usecases.machines.health import check_put, health_of
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.ports import LogPorts, SealedChangePorts, StreamPorts
from chalicelib.usecases.runs import job_keys
from chalicelib.usecases.runs.metrics import metric_puts
from chalicelib.usecases.services import router_workers

if TYPE_CHECKING:
    from chalicelib.contract import agent as contract

log = logging.getLogger(__name__)

ATTEMPTS = 8
NEWS = ("spec", "access", "workers")  # fields of a running task on which its agent must act
ORDER_PAUSE = 5.0  # seconds between the calls of an agent that may get orders at any moment, where no call is held
JOBS_A_COMMIT = 10  # a job that starts and ends in one message, and its run with it, takes nine changes
PAST_BOOTS = 8
PUT_OVER = (
    16 * 1024
)  # bytes of output from which an agent uploads it itself: another call costs less than passing them on
CLOCKS_AGREE: Micros = MINUTE  # differences up to this come from networks and polls; a larger one is that of the clocks


class AgentPorts(SealedChangePorts, TaskPorts, LogPorts, StreamPorts, UploadPorts, Protocol):
    """The ports for the calls of an agent."""

    @property
    def install_id(self) -> str: ...

    @property
    def retention(self) -> Retention: ...

    @property
    def hold(self) -> Hold: ...

    @property
    def epoch(self) -> Epoch | None: ...

    @property
    def renew(self) -> Callable[[Put], None] | None: ...


def sync(plane: AgentPorts, instance_id: str, credential: str, body: bytes | dict[str, Any]) -> contract.SyncReply:
    """The response to one message of this instance's agent."""
    message = read_message(body)
    if message.instance != instance_id:
        raise Invalid("The message is about another instance than its sender")
    return _exchange(plane, credential, message)


def take(plane: AgentPorts, credential: str, body: bytes) -> contract.SyncReply:
    """The response to a message that names its own instance."""
    return _exchange(plane, credential, read_message(body))


def _exchange(plane: AgentPorts, credential: str, message: AgentMessage) -> contract.SyncReply:
    """Raises Forbidden, Invalid, or StorageFull, on which the agent keeps its data and sends it again."""
    for _ in range(ATTEMPTS):
        try:
            with unit_context(f"instance/{message.instance}"):
                return _of_epoch(plane.epoch, _Exchange(plane, message).answer(credential))
        except Conflict as conflict:
            log.debug("sync of %s lost a race for %s; retrying", message.instance, conflict.key)
    raise Refused("The records of this instance are changing too fast.", hint="Try again.")


def _of_epoch(epoch: Epoch | None, answer: contract.SyncReply) -> contract.SyncReply:
    """The answer, with the epoch by which its agent tells a server that doesn't decide any more."""
    if epoch is not None:
        answer["lease"], answer["epoch"] = epoch.lease, epoch.number
    return answer


def has_news(answer: Mapping[str, Any]) -> bool:
    """Does a response require the agent to act? A long poll waits until it does."""
    return bool(answer.get("news"))


@dataclass
class _Exchange:
    """One attempt at one message, from a fresh read of the store."""

    plane: AgentPorts
    message: AgentMessage
    now: Micros = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)  # of jobs that start or end, by id
    volumes: dict[str, Volume] = field(default_factory=dict)  # of jobs that haven't started, by id
    gateway: Gateway | None = None  # whose replica runs on the machine, if the agent reports on it
    ordered: Sequence[Record] = ()  # streams that gateways have ordered from the agent
    ends: dict[str, int] = field(default_factory=dict)  # stored bytes of log, by job
    specs: dict[str, contract.Task] = field(default_factory=dict)  # of tasks the agent hasn't listed
    uploads: list[contract.Upload] = field(
        default_factory=list
    )  # where the agent may upload the chunks that it announced
    revision: str = ""  # of the rights to log in to jobs
    became_ready: list[Job] = field(default_factory=list)  # replicas
    unfinished: bool = False  # more reports than one commit takes

    def answer(self, credential: str) -> contract.SyncReply:
        self.now = self.plane.clock.now()
        read = self.plane.read
        status, presence, self.ordered = read.machine(self.message.instance)
        instance = None if status is None else read.parse(Instance, status)
        known = None if presence is None else read.parse(Presence, presence)
        if instance is None and outlived(self.plane, self.message.instance, credential):
            return self._gone()
        if instance is None and self.plane.hold.looking:
            self._met("agent", self.message.instance, "the agent of a machine that the records don't know reports.")
        entry = admit(self.plane, instance, known, credential, self.message.boot)
        assert instance is not None, "`admit` admits nobody for an instance that doesn't exist"
        if instance.status is InstanceStatus.terminated or should_leave(instance):
            return self._gone()
        self._load(instance)
        beside = () if self.gateway is None else (self.gateway,)
        given = NounsSnapshot(
            self.now, (instance, *self.jobs.values(), *self.runs.values(), *self.volumes.values(), *beside)
        )
        after, draft = self._fold(instance, entry, repeated=_repeated(entry.presence, self.message))
        self._commit(given, entry, draft, known, awaited=instance.unreachable or _joining(instance))
        self._wake(instance, known)
        return self._answer(after, entry)

    def _gone(self) -> contract.SyncReply:
        """The order to end everything there, which a server that only looks doesn't give. Refused, an agent keeps its
        tasks and asks again."""
        if self.plane.hold.looking:
            self._met("agent", self.message.instance, "the agent of a machine that the records take for ended reports.")
            raise Forbidden("This server was restored from a backup, and only looks until it goes on")
        return _gone(self.message)

    def _met(self, kind: str, id_: str, says: str) -> None:
        self.plane.hold.met(Met(kind=kind, id=id_, says=f"{self.message.instance[:8]}: {says}"))

    def _load(self, instance: Instance) -> None:
        claims = {c.job_id: keys.job(c.run_id, c.replica_num, c.job_num, c.submission_num) for c in instance.claims}
        found, self.revision = self._read_jobs(list(claims.values()))
        self.jobs = {job.id: job for job in found if job is not None and job.id in claims}
        states = {task.id: task.state for task in self.message.tasks}
        moves = [keys.run(job.run_id) for job in self.jobs.values() if _may_move(job, states.get(job.id))]
        self.runs = {run.id: run for run in self.plane.read.find_many(Run, list(dict.fromkeys(moves))) if run}
        mounting = {task.id for task in self.message.tasks if task.mounted}
        jobs = [job for job in self.jobs.values() if job.running_at is None or job.id in mounting]
        starting = [job.assignment for job in jobs if job.assignment and not job.finished]
        wanted = dict.fromkeys(keys.volume(each.id) for assignment in starting for each in assignment.volumes)
        self.volumes = {each.id: each for each in self.plane.read.find_many(Volume, list(wanted)) if each}
        if instance.gateway is not None and self.message.gateway is not None:
            self.gateway = self.plane.read.find(Gateway, keys.gateway(instance.gateway.gateway_id))

    def _read_jobs(self, wanted: Sequence[Key]) -> tuple[list[Job | None], str]:
        """The jobs and, if the agent named its revision of the rights to log in to them, the current one: one read."""
        if not wanted:
            return [], ""
        has_revision = any(task.access is not None for task in self.message.tasks)
        found = self.plane.store.get_many([*wanted, keys.rights()] if has_revision else wanted)
        records, moved = found[: len(wanted)], found[len(wanted) :]
        read = self.plane.read
        revision = rights_revision.revision_of(moved[0]) if moved else ""
        return [None if each is None else read.parse(Job, each) for each in records], revision

    # --- up -----------------------------------------------------------------------------------------------------------

    def _fold(self, instance: Instance, entry: Admission, *, repeated: bool) -> tuple[Instance, Draft]:
        """Applies the message. Logs are placed by offset, so repeating them is harmless."""
        draft = Draft(self.now)
        fold = ReportFold(draft, instance, self.message.at)
        off = entry.presence.clock_off
        self.jobs, self.ends = take_logs(self.plane, self.message, self.jobs, draft, off)
        self.jobs, stored, self.uploads = take_chunks(self.plane, self.message, self.jobs, draft, off)
        self.ends |= stored
        reports = {task.id: task for task in self.message.tasks}
        if not repeated:
            self._note_strangers(reports)
        changed = 0
        for job_id, job in list(self.jobs.items()):
            if changed >= JOBS_A_COMMIT:
                self.unfinished = True
                break
            old = repeated or self._already_reported(job)
            after = job if old else self._reported(fold, job, reports.get(job_id))
            if not old:
                self._mounts_reported(draft, after, reports.get(job_id))
            if self._to_begin(after, reports) and not _joining(instance):
                after = self._prepare(fold, after)
            if after is not job:
                after = after.with_(told_by=(self.message.boot, self.message.seq))
                draft.save(after)
                self._follow_run(draft, after)
            changed += after is not job
            if after.ready_at is not None and job.ready_at is None:
                self.became_ready.append(after)
            self.jobs[job_id] = after
        if not repeated:
            fold.gateway(self.gateway, self.message.gateway)
        if self.message.taken_back_in is not None and not repeated:
            fold.interrupted(self.message.taken_back_in)
        return fold.instance, draft

    def _to_begin(self, job: Job, reports: Mapping[str, TaskReport]) -> bool:
        """Does the job wait for its machine to be told? Restored, it may have been there and gone since the backup."""
        return job.status is JobStatus.provisioning and job.id not in reports and not self.plane.hold.looking

    def _already_reported(self, job: Job) -> bool:
        """Did this message, or a later one of the same agent process, update the job?"""
        boot, seq = job.told_by or ("", 0)
        return boot == self.message.boot and self.message.seq <= seq

    def _follow_run(self, draft: Draft, job: Job) -> None:
        """Update the job's run, which follows the job."""
        run = self.runs.get(job.run_id)
        if run is None:
            return
        if job.status is JobStatus.running:
            self.runs[run.id] = follow(draft, run, job)
        elif job.finished:
            read = self.plane.read
            try:
                specs = read.run_spec(run.id, run.deployment_num), read.job_specs(run.id, job.deployment_num)
            except (Bug, ValidationError):  # its own pass reports it; the machine's other jobs mustn't suffer
                log.exception("run %s can't be read, so it doesn't end with its job", run.id)
                return
            self.runs[run.id] = finish(draft, run, job, *specs)

    def _reported(self, fold: ReportFold, job: Job, report: TaskReport | None) -> Job:
        if report is None and not job.finished and self.plane.hold.looking:  # it may have ended since the backup
            if job.status in (JobStatus.pulling, JobStatus.running):
                self._met("job", job.id, f"the agent doesn't list job {job.name}, which the records take for running.")
            elif job.status is JobStatus.provisioning:
                self._met("job", job.id, f"the agent doesn't list job {job.name}, which the records have begin there.")
            return job
        return fold.report(job, report, self._end_of(job, report), self._replica(job, report))

    def _replica(self, job: Job, report: TaskReport | None) -> JobSpec | None:
        """The job's spec if it is a replica of a service whose readiness this report can change. Only for replicas do
        agents report whether the task listens; earlier agents don't report it at all."""
        if report is None or report.state != "running" or (report.listens is None and job.running_at is not None):
            return None
        spec = self.plane.read.job_spec(job)
        return spec if spec.service_port is not None else None

    def _end_of(self, job: Job, report: TaskReport | None) -> int:
        """Stored bytes of the job's log; read only when it matters."""
        if job.id not in self.ends and report is not None and report.state == "exited":
            self.ends[job.id] = self.plane.logs.end(job.project_id, job.id)
        return self.ends.get(job.id, job.log_end)

    def _mounts_reported(self, draft: Draft, job: Job, report: TaskReport | None) -> None:
        """Note that the mounted volumes have a filesystem, so that they are never formatted again, and why one of them
        can't be unmounted."""
        if report is None or job.assignment is None:
            return
        for volume_id in sorted({each.id for each in job.assignment.volumes}.intersection(report.mounted)):
            volume = self.volumes.get(volume_id)
            if volume is None:
                continue
            after = with_hold(volume.with_(blank=False), job, job.held if volume_id in report.held else "")
            if after != volume:
                self.volumes[volume_id] = after.with_(last_processed_at=self.now)
                draft.save(self.volumes[volume_id])

    def _prepare(self, fold: ReportFold, job: Job) -> Job:
        """Prepare the job's task once its volumes are attached and the addresses that it needs are known."""
        disks = disks_of(job, self.volumes, self.plane.install_id)
        if disks is None:
            return job
        try:
            task = task_of(self.plane, job, fold.instance, disks)
        except Refused as refused:
            log.warning("job %s can't be sent to instance %s: %s", job.id, fold.instance.id, refused)
            return fold.end(job, JobReason.terminated_by_server, str(refused), 0)
        if task is not None:
            self.specs[job.id] = task
        return job

    def _note_strangers(self, reports: Mapping[str, TaskReport]) -> None:
        """Log tasks that aren't assigned to this instance. Ended ones are left out: they wait to be removed, and their
        metrics may come late. For debugging only, because a call that was held while its job ended names the job, too.
        """
        going = {task.id for task in reports.values() if task.state == "exited"}
        reported = {*reports, *(chunk.task for chunk in self.message.logs)}
        strangers = sorted(reported - self.jobs.keys() - going)
        if strangers and self.plane.hold.looking:
            for task in strangers:
                self._met("task", task, f"the agent runs task {task[:40]}, which the records don't know.")
        for task in strangers:
            log.debug("instance %s reports task %.40r, which isn't assigned to it", self.message.instance, task)

    def _commit(
        self, given: NounsSnapshot, entry: Admission, draft: Draft, known: Presence | None, *, awaited: bool
    ) -> None:
        """`awaited`: the next pass depends on the presence, so it must be written now."""
        presence, news = self._presence(entry, changed=entry.presence != known)
        beside: list[Change] = [] if presence == known else [nouns.put(presence)]
        if presence.health is not None and not presence.health.same(entry.presence.health):
            beside.append(check_put(self.message.instance, presence.health, self.now))
        days = self.plane.retention.metrics
        beside += metric_puts(self.message.metrics, self.jobs, self.now, days, presence.clock_off)
        if self.plane.renew is not None and draft.empty and beside == [nouns.put(presence)] and not (news or awaited):
            return self.plane.renew(nouns.put(presence))
        room = MAX_CHANGES - draft.size  # all but metrics fit
        if beside or not draft.empty:
            self.plane.committer.take(given, draft.plan(), beside[:room], caller=self.message.instance)
        for start in range(room, len(beside), MAX_CHANGES):
            self.plane.store.commit(beside[start : start + MAX_CHANGES])

    def _presence(self, entry: Admission, *, changed: bool) -> tuple[Presence, bool]:
        """The agent's presence after this message, and whether something in it changed. It is also renewed when the
        agent's promise to report grows old."""
        known, message = entry.presence, self.message
        after = known if _repeated(known, message) else _updated(known, message, self.now)
        current, before = ((each.boot, each.facts, each.health, each.clock_off) for each in (after, known))
        news = changed or bool(entry.credential) or current != before
        pace = self.plane.pace
        if not news and not pace.stale(self.now - known.last_seen):
            return known, False
        promised = pace.promised(self.now, message.wait)
        return after.with_(last_seen=self.now, seen_until=promised, watched=pace.watched), news

    def _wake(self, instance: Instance, known: Presence | None) -> None:
        units: dict[str, None] = {}
        if (
            _joining(instance)
            or instance.unreachable
            or (self.message.facts and (known is None or known.facts != self.message.facts))
            or self._health_differs(known)
        ):
            units[f"instance/{instance.id}"] = None
        if instance.unreachable:
            units |= dict.fromkeys(f"run/{claim.run_id}" for claim in instance.claims)
        if units:
            self.plane.wake(units)
        if self.became_ready and (routers := router_workers.routers(self.plane, self.became_ready)):
            self.plane.notify_agents(routers)
        for task in self.message.tasks:
            if task.cleared is not None and (router := self.jobs.get(task.id)) is not None:
                router_workers.let_go(self.plane, router, task.cleared)

    def _health_differs(self, known: Presence | None) -> bool:
        if self.message.health is None:
            return False
        return not health_of(self.message.health, self.now).same(None if known is None else known.health)

    # --- down ---------------------------------------------------------------------------------------------------------

    def _answer(self, instance: Instance, entry: Admission) -> contract.SyncReply:
        reports = {task.id: task for task in self.message.tasks}
        tasks = [task for job in self.jobs.values() if (task := self._wanted(job, reports.get(job.id))) is not None]
        if not self.plane.hold.looking:  # what isn't in the answer is left alone
            tasks += [{"id": task_id, "want": "remove"} for task_id in reports if task_id not in self.jobs]
        answer: contract.SyncReply = {
            "news": False,
            "seq": self.message.seq,
            "tasks": tasks,
            "logs": [{"task": job_id, "offset": end} for job_id, end in self.ends.items()],
            "next_sync_in": self._next(instance, entry),
            "log_every": self.plane.pace.followed if self._followed(entry) else self.plane.pace.log,
        }
        if self.plane.uploads is not None:
            answer["log_put"], answer["uploads"] = PUT_OVER, self.uploads
        if entry.credential:
            answer["credential"] = entry.credential
        past = self.message.boot in entry.presence.past_boots
        if past:  # the process that gets this is alive: a message of an unknown, earlier process came after its own
            answer["boot"] = "past"
        if orders := stream_orders.take_orders(self.plane, instance.id, self.ordered):
            answer["streams"] = orders
        carried = gateway_replicas.wanted(instance.gateway)
        if carried is None and self.plane.hold.looking:
            carried = gateway_replicas.as_reported(self.message.gateway)
        if carried is not None:
            answer["gateway"] = carried
        must_act = any(task["want"] != "run" or not task.keys().isdisjoint(NEWS) for task in tasks)
        answer["news"] = (
            must_act
            or past
            or self.unfinished
            or (gateway_replicas.must_act(instance.gateway, self.message.gateway) and not self.plane.hold.looking)
            or bool(entry.credential or self.message.logs or self.message.chunks or "streams" in answer)
        )
        return answer

    def _wanted(self, job: Job, report: TaskReport | None) -> contract.TaskOrder | None:
        if job.finished:
            return None if report is None else {"id": job.id, "want": "remove"}
        if job.status is JobStatus.terminating:
            if report is None:
                return {"id": job.id, "want": "abort"}  # another response may be bringing it to the agent now
            return None if report.state == "exited" else stop_order(job, self.now)
        if job.status is JobStatus.submitted:
            return None if report is None or self.plane.hold.looking else {"id": job.id, "want": "remove"}
        if (spec := self.specs.get(job.id)) is not None:
            return {"id": job.id, "want": "run", "spec": spec}
        if report is None and job.status is JobStatus.provisioning:
            return None  # until its machine has joined
        order: contract.TaskOrder = {"id": job.id, "want": "run"}
        self._update_access(order, job, report)
        moved = router_workers.worker_update(self.plane, job, None if report is None else report.workers)
        if moved is not None:
            order["workers"], order["worker_urls"] = moved
        return order

    def _update_access(self, order: contract.TaskOrder, job: Job, report: TaskReport | None) -> None:
        """Say who may log in from now on, if the agent has an older list."""
        reported = None if report is None or report.state == "exited" else report.access
        if reported is not None and reported != self.revision:
            allowed = job_keys.access(self.plane.read, job)
            order["access"], order["authorized_keys"] = allowed.revision, list(allowed.keys)

    def _followed(self, entry: Admission) -> bool:
        return self.now < entry.presence.followed_until

    def _next(self, instance: Instance, entry: Admission) -> float:
        jobs: Sequence[Job] = [job for job in self.jobs.values() if not job.finished]
        ending = instance.status is InstanceStatus.terminating
        starting = any(job.status is not JobStatus.running for job in jobs)
        last = max((at for at in (instance.idle_since, *(job.running_at for job in jobs)) if at), default=0)
        settling = gateway_replicas.settling(instance.gateway, self.message.gateway)
        changing = self.unfinished or _joining(instance) or ending or starting or settling or self._followed(entry)
        pause = self.plane.pace.pause(changing=changing, since=self.now - last)
        return min(pause, ORDER_PAUSE) if any(map(self._expects_orders, self.message.tasks)) else pause

    def _expects_orders(self, task: TaskReport) -> bool:
        """May the task get orders at any moment: a router about its workers, or a replica about streams that its
        gateway wants?"""
        return task.workers is not None or (self.plane.streams is None and bool(task.listens))


def _gone(message: AgentMessage) -> contract.SyncReply:
    return {"seq": message.seq, "error": "gone", "tasks": [], "logs": [], "next_sync_in": 60, "news": True}


def _joining(instance: Instance) -> bool:
    """Are this machine's facts still unprocessed? Jobs are sent only afterwards: their environment contains addresses,
    and their events should come in order."""
    return instance.status in (InstanceStatus.pending, InstanceStatus.provisioning)


def _may_move(job: Job, state: str | None) -> bool:
    """May the job's run change, given the state of the job's task?"""
    return state == "exited" or (state == "running" and job.running_at is None)


def _updated(known: Presence, message: AgentMessage, now: Micros) -> Presence:
    """The presence, updated from a message. Not for a repeated one, which may be out of date."""
    past = known.past_boots
    if message.boot != known.boot and known.boot:
        past = (known.boot, *past)[:PAST_BOOTS]
    health = known.health if message.health is None else health_of(message.health, now)
    off = now - message.at if message.at else 0
    return known.with_(
        boot=message.boot,
        health=known.health if health is not None and health.same(known.health) else health,
        clock_off=known.clock_off if abs(off - known.clock_off) <= CLOCKS_AGREE else off,
        seq=message.seq,
        past_boots=past,
        facts=message.facts or known.facts,
        agent_version=message.agent or known.agent_version,
    )


def _repeated(known: Presence, message: AgentMessage) -> bool:
    """Was this message, or a later one of the same agent process, already applied?"""
    return message.boot in known.past_boots or (message.boot == known.boot and message.seq <= known.seq)
