"""Reading a job's log, and the story of how it came to run for those who ask why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chalicelib.domain.events import Event
from chalicelib.domain.instants import Micros
from chalicelib.domain.tenants import Project
from chalicelib.errors import Invalid, NotFound
from chalicelib.store import keys, nouns
from chalicelib.store.logs import Piece
from chalicelib.usecases.context import Plane

MAX_BYTES = 1_500_000  # of log in one answer; as base64 in JSON a third more, well below what may be answered


@dataclass(frozen=True)
class Wanted:
    """Which part of a log."""

    job_id: str
    start: Micros | None = None
    end: Micros | None = None
    descending: bool = False
    token: str | None = None
    limit: int = 100


def read_log(plane: Plane, project: Project, run_name: str, wanted: Wanted) -> tuple[Sequence[Piece], str | None]:
    """A page of the log and the token of the next page; None at the end of what there is.

    Streams lie under their project, so a job of another project reads as one without a log.
    """
    _known_run(plane, project, run_name)
    if wanted.limit == 0:
        return (), None
    page = plane.logs.read(
        project.id,
        wanted.job_id,
        start=wanted.start,
        end=wanted.end,
        token=wanted.token,
        limit=wanted.limit,
        max_bytes=MAX_BYTES,
        descending=wanted.descending,
    )
    return page.records, page.next_token


def story(plane: Plane, project: Project, run_name: str, wanted: Wanted) -> Sequence[Piece]:
    """What happened to the run and to this job, a line an event: the answer to `logs --diagnose`."""
    run_id = _known_run(plane, project, run_name)
    if wanted.token is not None:
        raise Invalid("The story of a job is one page; there is none after it.", hint="Ask without `next_token`.")
    page = plane.store.query("gsi1", keys.run_events(run_id), limit=1000, reverse=wanted.descending)
    told = [nouns.read(Event, record) for record in page.records]
    mine = [event for event in told if all(t.type != "job" or t.id == wanted.job_id for t in event.targets)]
    inside = [
        event
        for event in mine
        if (wanted.start is None or event.at >= wanted.start) and (wanted.end is None or event.at < wanted.end)
    ]
    return [(event.at, _line(event).encode()) for event in inside[: wanted.limit]]


def _line(event: Event) -> str:
    subject = event.targets[0]
    return f"{subject.type} {subject.name}: {event.message}\n"


def _known_run(plane: Plane, project: Project, name: str) -> str:
    found = nouns.find_target(plane.store, keys.run_name(project.id, name))
    if found is None:
        raise NotFound(f"There is no run {name[:80]!r} in project {project.name}.", hint="See them with: dstack ps -a")
    return found[0]
