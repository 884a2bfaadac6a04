"""The history of machines' health: a check for each change that an agent reports, kept for a week.

A machine whose health flaps makes at most one check a minute for each status: a later one replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.instances import Health, Instance, Trouble
from chalicelib.domain.instants import MINUTE, SECOND, Micros, sortable
from chalicelib.domain.noun import Value
from chalicelib.domain.tenants import Project
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.store.port import Put, Record
from chalicelib.usecases.agent_message import TroubleReport
from chalicelib.usecases.ports import RecordPorts

TTL_SECONDS = 7 * 86_400
MOST = 1_000  # checks in one response


class HealthCheck(Value):
    at: Micros
    health: Health


def health_of(troubles: list[TroubleReport], now: Micros) -> Health:
    """The reported problems, with times by our own clock: an agent reports ages, which don't depend on its clock."""
    return Health(
        troubles=tuple(
            Trouble(status=each.status, message=each.message, since=max(0, now - each.age * SECOND))
            for each in troubles
        )
    )


def check_put(instance: str, health: Health, now: Micros) -> Put:
    key = keys.health_check(instance, now - now % MINUTE, health.status)
    body = HealthCheck.unvalidated(at=now, health=health).model_dump_json().encode()
    return Put(Record(key, 1, body, expires_at=now // SECOND + TTL_SECONDS), expect=None)


@dataclass(frozen=True)
class WantedChecks:
    """Which checks of which instance to list; the bounds are exclusive."""

    fleet_name: str
    instance_num: int
    after: Micros | None = None
    before: Micros | None = None
    limit: int | None = None


def list_checks(plane: RecordPorts, project: Project, wanted: WantedChecks) -> list[HealthCheck]:
    """The checks, newest first."""
    instance = _instance(plane, project, wanted)
    low = "" if wanted.after is None else sortable(max(0, wanted.after - MINUTE))
    high = "" if wanted.before is None else sortable(wanted.before)
    limit = MOST if wanted.limit is None else min(wanted.limit, MOST)
    partition = keys.health_check(instance.id, 0, "").pk
    found = plane.store.query("main", partition, low=low, high=high, limit=MOST, reverse=True)
    checks = [HealthCheck.model_validate_json(record.body) for record in found.records]
    after, before = wanted.after, wanted.before
    within = [
        check for check in checks if (after is None or check.at > after) and (before is None or check.at < before)
    ]
    return sorted(within, key=lambda check: check.at, reverse=True)[:limit]


def _instance(plane: RecordPorts, project: Project, wanted: WantedChecks) -> Instance:
    found = nouns.find_target(plane.store, keys.fleet_name(project.id, wanted.fleet_name))
    instances = [] if found is None else plane.read.instances(found[0])
    instance = next((each for each in instances if each.num == wanted.instance_num), None)
    if instance is None:
        name = f"{wanted.fleet_name[:80]}-{wanted.instance_num}"
        raise NotFound(f"There is no instance {name} in project {project.name}.")
    return instance
