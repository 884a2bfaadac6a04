"""Runs: tasks, services and dev environments."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from chalicelib.errors import DstackError, NotFound
from cli.connection.polling import PollPauses
from dstack_serverless.api import logs as logs_api
from dstack_serverless.api import metrics as metrics_api
from dstack_serverless.api import runs as api
from dstack_serverless.sdk.configurations import Configuration, run_spec_of
from dstack_serverless.sdk.errors import FINISHED, RunEnded, WaitedTooLong
from dstack_serverless.sdk.flow import UNSET, Flow, Item, Items, Pause, Together
from dstack_serverless.sdk.paging import Order, pages
from dstack_serverless.sdk.resource import Mode, Resource, iterated, method

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies
    from dstack_serverless.sdk.attachment import Attachment

BEFORE_LOG = ("submitted", "provisioning", "pulling")
RUNS = Order("submitted_at", "prev_submitted_at", after_id="prev_run_id")
RECORDS = 1000  # of a page of a log
AT_ONCE = 16  # submissions

Stage = Literal["running", "done", "finished"]


class Runs(Resource[Mode]):
    """Runs of the client's project."""

    @method
    def plan(
        self, configuration: Configuration, *, profile: str | None = None, max_offers: int | None = None
    ) -> Flow[contract.RunPlan]:
        """What `apply` would do, and with which offers. Nothing is changed."""
        return (yield from self._plan(configuration, profile, max_offers))

    @method
    def apply(
        self, configuration: Configuration, *, profile: str | None = None, force: bool = False
    ) -> Flow[contract.Run]:
        """Submits the run, or changes the live one of this name; raises AlreadyExists if that can't be changed while it
        runs. `profile`: a profile of `.dstack/profiles.yml`. `force`: also if the run has changed meanwhile."""
        plan = yield from self._plan(configuration, profile, 1)
        current = plan["current_resource"]
        live = current is not None and current["status"] not in FINISHED
        return (yield from self._submit(dict(plan["run_spec"]), current if live else None, force))

    @method
    def submit(self, configuration: Configuration, *, profile: str | None = None) -> Flow[contract.Run]:
        """Submits a new run, without a plan. Raises AlreadyExists if a live run of its name can't become it."""
        spec = yield from run_spec_of(self.core, configuration, profile)
        return (yield from self._submit(spec, None, False))

    @method
    def submit_many(
        self, configurations: Iterable[Configuration], *, at_once: int = AT_ONCE, profile: str | None = None
    ) -> Flow[Sequence[contract.Run | DstackError]]:
        """Submits them all, `at_once` at a time. The result has a run or an error for each, in their order: one that
        fails doesn't keep the others."""
        flows = [self._submission(each, profile) for each in configurations]
        done: Sequence[contract.Run | DstackError] = yield Together(flows, at_once)
        return done

    @method
    def get(self, name: str | None = None, *, id: str | None = None) -> Flow[contract.Run]:
        """The latest run of this name, or the one with this id."""
        return (yield from self._get(name, id))

    @iterated
    def list(
        self,
        *,
        only_active: bool = False,
        user: str | None = None,
        every_project: bool = False,
        limit: int | None = None,
    ) -> Items[contract.Run]:
        """Runs, newest first; pages are fetched as they are needed. `limit`: at most so many."""
        project = UNSET if every_project else self.core.in_project()
        named = {"project_name": project, "username": user, "only_active": only_active}
        return Items(pages(self.core, api.list_runs, limit, RUNS, **named))

    @method
    def stop(self, *names: str, abort: bool = False) -> Flow[None]:
        """Stops runs: their jobs get time to end. `abort` ends them at once."""
        yield from self.core.ask(api.stop(self.core.in_project(), runs_names=[*names], abort=abort))

    @method
    def delete(self, *names: str) -> Flow[None]:
        """Deletes runs that have ended."""
        yield from self.core.ask(api.delete(self.core.in_project(), runs_names=[*names]))

    @method
    def wait(self, name: str, until: Stage = "finished", *, timeout: float | None = None) -> Flow[contract.Run]:
        """Waits until the run is `running` (or was), `done`, or `finished` in whatever way, and returns it. Raises
        RunEnded if it can't get there any more, and WaitedTooLong after `timeout` seconds."""
        pauses, by = PollPauses(), None if timeout is None else self.core.clock() + timeout
        while True:
            run = yield from self._get(name, by=by)
            if _arrived(run, until):
                return run
            if timeout is not None and by is not None and self.core.clock() >= by:
                raise WaitedTooLong(f"The run {name} is still {run['status_message']} after {timeout:g} s.")
            yield Pause(pauses.after(run["status"]))

    @iterated
    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        since: datetime | None = None,
        replica: int | None = None,
        job: int = 0,
        diagnose: bool = False,
    ) -> Items[bytes]:
        """What a job of the run has written, in pieces. `follow`: goes on as it grows, over retries, until the run has
        ended. `since`: a moment; one without a zone is in this machine's. `diagnose`: what the control plane knows of
        the job instead."""
        start = None if since is None else since.astimezone(UTC).isoformat()
        return Items(self._logs(name, follow, start, replica, job, diagnose))

    @method
    def metrics(self, name: str, *, replica: int = 0, job: int = 0, limit: int = 1) -> Flow[contract.JobMetrics]:
        """What a job has used: CPU, memory, GPUs. `limit`: so many values of each, newest first."""
        call = metrics_api.job(self.core.in_project(), name, replica_num=replica, job_num=job, limit=limit)
        return (yield from self.core.ask(call))

    def attach(
        self,
        name: str,
        ports: Mapping[int, int] | None = None,
        *,
        replica: int | None = None,
        job: int = 0,
        identity: str | None = None,
        timeout: float | None = None,
    ) -> Attachment:
        """Forwards the job's ports to this machine, over SSH: `with client.runs.attach("web") as attached:`, and then
        `attached.ports[80]` is the local port of the job's port 80. `ports`: which local ports they should have.
        `identity`: your private key, if the run has another. Raises WaitedTooLong after `timeout` seconds."""
        from dstack_serverless.sdk.attachment import Attachment  # it loads asyncio, which most programs don't need

        return Attachment(self.core, name, ports or {}, replica=replica, job=job, identity=identity, timeout=timeout)

    # --- their parts -------------------------------------------------------------------------------------------------

    def _plan(
        self, configuration: Configuration, profile: str | None, max_offers: int | None
    ) -> Flow[contract.RunPlan]:
        spec = yield from run_spec_of(self.core, configuration, profile)
        most = UNSET if max_offers is None else max_offers
        return (yield from self.core.ask(api.get_plan(self.core.in_project(), run_spec=spec, max_offers=most)))

    def _submission(self, configuration: Configuration, profile: str | None) -> Flow[contract.Run]:
        spec = yield from run_spec_of(self.core, configuration, profile)
        return (yield from self._submit(spec, None, False))

    def _submit(self, spec: dict[str, Any], current: contract.Run | None, force: bool) -> Flow[contract.Run]:
        seen: bodies.CurrentRun | None = None
        if current is not None:
            seen = {"id": current["id"], "deployment_num": current["deployment_num"]}
        call = api.apply(self.core.in_project(), plan={"run_spec": spec, "current_resource": seen}, force=force)
        return (yield from self.core.ask(call))

    def _get(self, name: str | None, id: str | None = None, *, by: float | None = None) -> Flow[contract.Run]:
        return (yield from self.core.ask(api.get(self.core.in_project(), run_name=name, id=id), by))

    def _logs(
        self, name: str, follow: bool, since: str | None, replica: int | None, job: int, diagnose: bool
    ) -> Flow[None]:
        pauses, reader = PollPauses(), LogReader(self, name, since, diagnose)
        while True:
            run = yield from self._get(name)
            chosen = _job_of(run, replica, job)
            latest = _newest(chosen)
            ended = run["status"] in FINISHED
            if chosen and latest and (diagnose or latest["status"] not in BEFORE_LOG):
                replica = chosen["job_spec"]["replica_num"]  # the log stays that of one
                yield from reader.turn_to(latest["id"])
            yield from reader.drain()
            if ended or not follow:
                return
            yield Pause(pauses.after((run["status"], latest and latest["id"], latest and latest["status"])))


class LogReader:
    """One job's log, over its submissions. It only grows, so what was read is skipped when a page is read again."""

    def __init__(self, runs: Runs[Any], name: str, since: str | None, diagnose: bool) -> None:
        self._runs, self._name, self._since, self._diagnose = runs, name, since, diagnose
        self._submission, self._token, self._read = "", UNSET, 0

    def turn_to(self, submission: str) -> Flow[None]:
        """Continues with this submission, once all of the last one is read."""
        if submission != self._submission:
            yield from self.drain()
            self._submission, self._token, self._read = submission, UNSET, 0

    def drain(self) -> Flow[None]:
        """Yields everything that is there now."""
        while self._submission:
            core = self._runs.core
            page = yield from core.ask(
                logs_api.poll(
                    core.in_project(),
                    run_name=self._name,
                    job_submission_id=self._submission,
                    start_time=self._since,
                    next_token=self._token,
                    limit=RECORDS,
                    diagnose=self._diagnose,
                )
            )
            data = b"".join(base64.b64decode(record["message"]) for record in page["logs"])
            if len(data) > self._read:
                yield Item(data[self._read :])
                self._read = len(data)
            following = page["next_token"]
            if following is None or following == self._token:
                return
            self._token, self._read = following, 0


def _arrived(run: contract.Run, until: Stage) -> bool:
    status = run["status"]
    if until == "finished" or status not in FINISHED:
        return status in FINISHED if until != "running" else status == "running"
    if status == "done":
        return True
    why = run["message"] or run["error"] or ""
    raise RunEnded(f"The run {run['run_spec']['run_name']} {status}{': ' + why if why else ''}.", run)


def _job_of(run: contract.Run, replica: int | None, number: int) -> contract.Job | None:
    """The job with this number; None if the run has none yet. Unless its replica is named, that of the lowest one that
    runs, else of the lowest."""
    jobs = sorted(
        (
            job
            for job in run["jobs"]
            if job["job_spec"]["job_num"] == number and replica in (None, job["job_spec"]["replica_num"])
        ),
        key=lambda job: job["job_spec"]["replica_num"],
    )
    if not jobs and run["jobs"]:
        raise NotFound(f"The run has no job {number}{'' if replica is None else f' in a replica {replica}'}.")
    running = (job for job in jobs if (latest := _newest(job)) and latest["status"] == "running")
    return next(running, jobs[0] if jobs else None)


def _newest(job: contract.Job | None) -> contract.Submission | None:
    return job["job_submissions"][-1] if job and job["job_submissions"] else None
