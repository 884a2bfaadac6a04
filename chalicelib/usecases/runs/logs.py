"""Reading a job's log, and diagnosing why there is none."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instances import Presence
from chalicelib.domain.tenants import Project
from chalicelib.errors import Conflict, Invalid, NotFound
from chalicelib.store import nouns
from chalicelib.store.history import events_in
from chalicelib.store.logs import LogPage, LogQuery, Piece
from chalicelib.usecases.pace import FOLLOWED
from chalicelib.usecases.ports import LogPorts, RecordPorts

log = logging.getLogger(__name__)

MAX_BYTES = 1_500_000  # of log in one response; as base64 a third more, well below the limit of responses


def read_log(plane: LogPorts, project: Project, run_name: str, job_id: str, query: LogQuery) -> LogPage:
    """A page of the log. Logs are stored by project, so a job of another project looks like one without a log."""
    run_id = _known_run(plane, project, run_name)
    page = plane.logs.read(project.id, job_id, replace(query, max_bytes=MAX_BYTES))
    if plane.pace.followed < plane.pace.log and page.next_token is None:
        _follow(plane, run_id, job_id)
    return page


def _follow(plane: RecordPorts, run_id: str, job_id: str) -> None:
    """The log's reader will want the output to come: have the job's agent send it at once for a while, beginning with
    its next call."""
    job = next((job for job in plane.read.jobs(run_id) if job.id == job_id), None)
    if job is None or job.finished or job.assignment is None:
        return
    presence = nouns.find(plane.store, Presence, keys.presence(job.assignment.instance_id))
    now = plane.clock.now()
    if presence is None or presence.followed_until - now > FOLLOWED // 2:
        return
    try:
        plane.store.commit([nouns.put(presence.with_(followed_until=now + FOLLOWED))])
    except Conflict:
        log.debug("the agent of job %s called meanwhile; the next read marks its log as followed", job_id)


def story(plane: RecordPorts, project: Project, run_name: str, job_id: str, query: LogQuery) -> Sequence[Piece]:
    """The events of the run and this job, one per line: the response to `logs --diagnose`."""
    run_id = _known_run(plane, project, run_name)
    if query.token is not None:
        raise Invalid("A job's diagnosis is a single page; there is no next one.", hint="Leave out `next_token`.")
    page = plane.store.query("gsi1", keys.run_events(run_id), limit=1000, reverse=query.descending)
    events = [event for record in page.records for event in events_in(record) if event.run_id == run_id]
    own = [event for event in events if all(t.type != "job" or t.id == job_id for t in event.targets)]
    inside = [event for event in own if query.start <= event.at < query.end]
    inside.sort(key=attrgetter("at", "id"), reverse=query.descending)
    return [(event.at, _line(event).encode()) for event in inside[: query.limit]]


def _line(event: Event) -> str:
    subject = event.targets[0]
    return f"{subject.type} {subject.name}: {event.message}\n"


def _known_run(plane: RecordPorts, project: Project, name: str) -> str:
    found = nouns.find_target(plane.store, keys.run_name(project.id, name))
    if found is None:
        raise NotFound(f"There is no run {name[:80]!r} in project {project.name}.", hint="See them with: dstack ps -a")
    return found[0]
