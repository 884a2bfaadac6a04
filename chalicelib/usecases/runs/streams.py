"""Streams to jobs: the rights to open them, and the ticket with which a job's host dials.

Every member may follow a job's log, as they may read the stored one. Ports and shells are for the run's user, whose
secrets are in the job, and for managers of the project. A stream ends when its user loses that right.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User, may_reach
from chalicelib.errors import Invalid, NotSupported, Refused
from chalicelib.store import nouns
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.ports import RecordPorts, StreamPorts
from chalicelib.usecases.runs.jobs import newest_job

_TARGETS = "`logs`, `ssh`, or a port as `port:8000`"


@dataclass(frozen=True)
class StreamTarget:
    """A target in a job."""

    run_name: str
    name: str  # logs, ssh, port:N
    replica_num: int = 0
    job_num: int = 0
    since: Micros | None = None  # logs: the first moment to show


def open_stream(
    plane: StreamPorts, user: User, project: Project, role: ProjectRole | None, target: StreamTarget, token_hash: str
) -> str:
    """The id of a stream, for which the caller waits. `token_hash`: the hash of the caller's token."""
    if plane.streams is None:
        raise NotSupported(
            "This control plane runs in AWS Lambda, where no connection lasts, so it can't carry streams.",
            hint="Reach the host by SSH, directly or through its head node.",
        )
    check_name(target.name)
    job = newest_job(plane.read, project, target.run_name, target.replica_num, target.job_num)
    if target.name != "logs":
        if not may_reach(user, role, _owner(nouns.find(plane.store, Run, keys.run(job.run_id)))):
            raise Refused(
                f"Only its user and the managers of project {project.name} may reach into run {job.run_name}."
            )
        if _beyond_limit(plane, user, job):
            raise Refused(
                f"The access token {user.by_token} has a limit of dollars a day, "
                f"and the jobs of run {job.run_name} have a token that has none.",
                hint="Use your own token, or run it without `dstack: true`.",
            )
    if job.status is not JobStatus.running or job.assignment is None:
        raise Refused(f"The job {job.name} isn't running: it is {job.status.value}.")
    order: dict[str, Any] = {"task": job.id, "target": target.name}
    if target.since is not None:
        order["since"] = target.since
    may = partial(still_may, plane, user.id, token_hash, project, job, target.name)
    stream = plane.streams.open(job.assignment.instance_id, user.id, order, may)
    plane.notify_agents([job.assignment.instance_id])
    return stream


def claim(plane: StreamPorts, stream_id: str, ticket: str) -> None:
    """Accept an agent's connection for the stream."""
    if plane.streams is None:
        raise NotSupported("This control plane runs in AWS Lambda, which can't carry streams.")
    plane.streams.claim(stream_id, ticket)


def check_name(name: str) -> None:
    """Raises Invalid for a target that doesn't exist."""
    kind, _, port = name.partition(":")
    if name in ("logs", "ssh"):
        return
    if kind == "port" and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536:
        return
    raise Invalid(f"There is no target {name[:40]!r} of a stream.", hint=f"It is {_TARGETS}.")


def still_may(plane: RecordPorts, user_id: str, token_hash: str, project: Project, job: Job, name: str) -> bool:
    """May the user, with the same token, still open this target?"""
    places = (keys.user(user_id), keys.project(project.id), keys.member(project.id, user_id), keys.run(job.run_id))
    user_record, project_record, member_record, run_record = plane.store.get_many(places)
    known = None if user_record is None else nouns.read(User, user_record)
    acting = None if known is None or not known.active else _acting(plane, known, token_hash, project)
    if acting is None:
        return False
    known, entry = acting
    if project_record is None or nouns.read(Project, project_record).deleted:
        return False
    given = None if member_record is None else nouns.read(Member, member_record).role
    role = rights_revision.acting_role(given, entry)
    if role is None and known.role is not GlobalRole.admin:
        return False
    owner = _owner(None if run_record is None else nouns.read(Run, run_record))
    return name == "logs" or (may_reach(known, role, owner) and not _beyond_limit(plane, known, job))


def _acting(
    plane: RecordPorts, user: User, token_hash: str, project: Project
) -> tuple[User, AccessToken | None] | None:
    """The user as a caller with this token, if it is valid, and for this project; and the token, if it is an access
    token. Its verbs never change."""
    now = plane.clock.now()
    if rights_revision.good(plane.store, user, token_hash, now):
        return user, None
    entry = rights_revision.access_token(plane.store, user, token_hash, now)
    if entry is None or not entry.includes(project.id):
        return None
    return rights_revision.acting(user, entry), entry


def _beyond_limit(plane: RecordPorts, user: User, job: Job) -> bool:
    """Would a caller whose token has a limit find one without a limit in the job?"""
    return user.limit is not None and plane.store.get(keys.run_access(job.run_id)) is not None


def _owner(run: Run | None) -> str | None:
    return None if run is None else run.user_id
