"""Following a run: its log, its stages in a line, and its exit code."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from chalicelib.errors import NotFound
from chalicelib.printable import printable
from cli.applying.job_log import JobLog
from cli.connection.polling import PollPauses
from cli.connection.session import Session
from cli.screen.render import paint
from cli.ssh.attachment import JobAttachment
from cli.tables.cells import age, moment, money, place
from cli.tables.runs import FINISHED, failed_job, newest, run_status, status_of

if TYPE_CHECKING:
    from rich.status import Status

    from chalicelib import contract

BEFORE_LOG = ("submitted", "provisioning", "pulling")


STYLE_OF_END = {"done": "good", "terminated": "warn", "failed": "bad"}


def job_of(run: contract.Run, replica: int | None, job: int) -> contract.Job | None:
    """The requested job; None if the run has none yet. The default replica is the lowest running one, else the
    lowest."""
    jobs = [found for found in run["jobs"] if found["job_spec"]["job_num"] == job]
    jobs.sort(key=lambda found: found["job_spec"]["replica_num"])
    if replica is not None:
        jobs = [found for found in jobs if found["job_spec"]["replica_num"] == replica]
    running = [found for found in jobs if status_of(found) == "running"]
    if jobs:
        return (running if replica is None and running else jobs)[0]
    if run["jobs"]:
        wanted = f"job {job}" if replica is None else f"replica {replica}, job {job}"
        raise NotFound(f"This run has no {wanted}.", hint="`dstack ps -v` lists its replicas and jobs.")
    return None


class Stages:
    """The progress of a run or a fleet on standard error: a spinner on a terminal, else a line per change."""

    def __init__(self, session: Session) -> None:
        self.terminal = session.terminal
        self.last = ""
        self._spinner: Status | None = None

    def update(self, run: contract.Run, job: contract.Job | None) -> None:
        self.print(stage(run, job), f" · submitted {age(run.get('submitted_at'), self.terminal.now())}")

    def print(self, text: str, since: str = "") -> None:
        """Shows a stage. `since` changes with time alone, so it is only for the spinner."""
        if self.terminal.watched:
            self._spin(printable(text + since))
        elif text != self.last:
            self.terminal.warn(text)
        self.last = text

    def close(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def _spin(self, text: str) -> None:
        if self._spinner is None:
            from rich.console import Console

            console = Console(stderr=True, no_color=not self.terminal.colour, highlight=False)
            self._spinner = console.status(text)
            self._spinner.start()
        self._spinner.update(text)


def stage(run: contract.Run, job: contract.Job | None) -> str:
    """`pulling 1.2/3.4GB on aws (us-east-1)`: the run's status, how far it is, and where."""
    latest = newest(job) if job else None
    status, now = run_status(run), latest["status"] if latest else None
    if latest and now == "pulling":
        status = f"pulling{pull_progress(latest['image_pull_progress'])}"
    placed = latest["job_provisioning_data"] if latest else None
    where = f" on {place(placed['backend'], placed['region'])}" if placed else ""
    known = now == "running" or run["status"] == "terminating"  # its end gives the reason
    why = "" if known else reason_of(run)
    return f"{status}{where}{': ' + why if why else ''}"


def reason_of(run: contract.Run) -> str:
    """Why the run waits or ended, as the server puts it; empty if it gives no reason."""
    latest = run["latest_job_submission"]
    of_job = latest["termination_reason_message"] if latest else None
    return of_job or run["message"] or run["error"] or (latest["error"] if latest else None) or ""


def pull_progress(pull: contract.PullProgress | None) -> str:
    if not pull or not pull["total_bytes"]:
        return ""
    at_least = "" if pull["is_total_bytes_final"] else "≥"
    parts = [f"{amount / 2**30:.1f}" for amount in (pull["extracted_bytes"], pull["downloaded_bytes"])]
    return f" {'/'.join(parts)}/{at_least}{pull['total_bytes'] / 2**30:.1f}GB"


def follow(
    session: Session,
    name: str,
    *,
    replica: int | None = None,
    job: int = 0,
    log: JobLog | None = None,
    attachment: JobAttachment | None = None,
    stages: Stages | None = None,
) -> contract.Run:
    """Writes the log as it grows until the run has ended, and returns the final run. A retry creates a new submission,
    whose log follows that of the old one."""
    pace = PollPauses()
    while True:
        run = session.get_run(name)
        chosen = job_of(run, replica, job)
        latest = newest(chosen) if chosen else None
        ended = run["status"] in FINISHED
        started = latest is not None and latest["status"] not in BEFORE_LOG
        if stages and started:
            _begin(stages, run, chosen, log)
        elif stages and not ended:
            stages.update(run, chosen)
        if attachment:
            attachment.tend(run, chosen)
        held = log is not None and attachment is not None and not ended and attachment.is_awaited()
        if log and chosen and started and not held:
            log.turn_to(chosen)
        if log and not held:
            log.drain(ended)
        if ended:
            if stages:
                stages.close()
            return run
        seen = (latest["id"], latest["status"]) if latest else None
        _wait(session, pace.after((run["status"], seen)), log, attachment)


def _begin(stages: Stages, run: contract.Run, job: contract.Job | None, log: JobLog | None) -> None:
    """Ends the stages when the job has started: its log, if wanted, takes their place."""
    stages.close()
    latest = newest(job) if job else None
    assert latest is not None, "it has started"
    if log and log.submission != latest["id"] and run["status"] not in FINISHED:
        before, stages.last = stages.last, stage(run, job)
        if before != stages.last:
            stages.terminal.warn(stages.last)


def _wait(session: Session, seconds: float, log: JobLog | None, attachment: JobAttachment | None) -> None:
    """Waits until the next poll, or until something happens to the attachment. Meanwhile the log is written as it
    comes."""
    watched = [one for one in (log, attachment) if one is not None and one.fileno() >= 0]
    if not watched:
        session.terminal.sleep(seconds)
        return
    until = time.monotonic() + seconds
    # A job may print without a pause.
    while (left := until - time.monotonic()) > 0 and (ready := select.select(watched, [], [], left)[0]):
        over = log is not None and log in ready and log.write_arrived()
        if over or attachment in ready:
            return


def exit_code(run: contract.Run) -> int:
    """0 for a run that is done; the exit status of the job that failed by itself, if one did; else 1. The other jobs
    were stopped because of it, so their status means nothing."""
    if run["status"] != "failed":
        return 0 if run["status"] == "done" else 1
    failed = failed_job(run)
    latest = newest(failed) if failed else None
    status = latest["exit_status"] if latest else None
    return status if isinstance(status, int) and 0 < status < 256 else 1


def ending(run: contract.Run, name: str, colour: bool) -> str:
    """How the run ended, how long it took, what it cost and, unless it is done, why: one line per reason."""
    latest = run["latest_job_submission"]
    finished = latest["finished_at"] if latest else None
    started, ended = moment(run["submitted_at"]), moment(finished or run["last_processed_at"])
    took = f" after {max(ended - started, 0):.0f} s" if started is not None and ended is not None else ""
    cost = f", {money(run['cost'])}" if run["cost"] else ""
    why = reason_of(run).split("; ") if run["status"] != "done" else []
    reason = ":\n  " + "\n  ".join(why) if len(why) > 1 else f": {why[0]}" if why and why[0] else ""
    failed = failed_job(run)
    node = f" on {failed['job_spec']['job_name']}" if failed and len(run["jobs"]) > 1 else ""
    how = "" if run["status"] == "done" else f" ({run_status(run)}{node})"
    text = f"{name} {run['status']}{how}{took}{cost}"
    return paint(text, STYLE_OF_END.get(run["status"], "bad"), colour) + reason
