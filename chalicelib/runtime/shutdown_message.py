"""The message that a server prints when it stops: what continues to run without it, and how to end that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.names import first_of
from chalicelib.domain.runs import Run
from chalicelib.domain.tenants import Project
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.usecases.context import Plane

MAIN = "main"


def shutdown_lines(plane: Plane, *, ended: int = 0, simulated: str = "") -> list[str]:
    """The lines to print. `ended`: the number of machines of the simulated cloud (backend `simulated`) that have ended
    with the server."""
    projects = {project.id: project for project in _projects(plane)}
    instances = [one for id_ in projects for one in _instances(plane, id_) if one.offer.backend != simulated]
    runs = [_shown(run, projects) for run in _runs(plane, instances)]
    bought = [one for one in instances if one.bought]
    lines = [f"{_count(ended, 'machine')} of the simulated cloud ended with the server."] if ended else []
    if runs:
        lines.append(f"{_count(len(runs), 'run')} {_go(runs)} on without the server: {first_of(runs)}.")
        lines.append("To end one, start the server again and type `dstack stop NAME`.")
        if any(one.local and one.claims for one in instances):
            lines.append("A server that is started with --stop-jobs ends the jobs of this machine when it stops.")
    if bought:
        names = first_of([f"{one.name} ({one.offer.backend})" for one in bought])
        price = f"${sum(one.offer.price for one in bought):g} an hour"
        lines.append(f"{_count(len(bought), 'machine')} {_go(bought)} on, for {price}: {names}.")
        lines.append("To release them, start the server again and type `dstack fleet delete NAME`.")
    return lines


def _projects(plane: Plane) -> Iterator[Project]:
    ids = [orjson.loads(record.body)["id"] for record in every(plane.store, "projects", "name/")]
    found = nouns.find_many(plane.store, Project, [keys.project(project_id) for project_id in ids])
    yield from (project for project in found if project is not None)


def _instances(plane: Plane, project_id: str) -> Iterator[Instance]:
    """The project's live instances; of those that are bought, only those with a machine."""
    fleets = [fleet.id for fleet in plane.read.fleets(project_id)]
    gateways = [gateway.id for gateway in plane.read.gateways(project_id)]
    for owner_id in (*fleets, *gateways):
        for one in plane.read.instances(owner_id):
            if one.status is not InstanceStatus.terminated and (one.handles or not one.bought):
                yield one


def _runs(plane: Plane, instances: Sequence[Instance]) -> Iterator[Run]:
    ids = dict.fromkeys(claim.run_id for one in instances for claim in one.claims)
    found = nouns.find_many(plane.store, Run, [keys.run(run_id) for run_id in ids])
    yield from (run for run in found if run is not None and not run.finished)


def _shown(run: Run, projects: dict[str, Project]) -> str:
    project = projects[run.project_id].name if run.project_id in projects else MAIN
    return run.name if project == MAIN else f"{project}/{run.name}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _go(found: Sequence[object]) -> str:
    return "goes" if len(found) == 1 else "go"
