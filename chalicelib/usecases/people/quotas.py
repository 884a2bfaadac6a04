"""Quotas of projects: their limits, their use, and changing them.

The quota of a project protects the installation from the project, so global admins set it. How a project shares it
among its users is its own admins' matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Offer
from chalicelib.domain.quotas import EACH_USER, MOST_USERS, NONE, Limits, Quota
from chalicelib.domain.tenants import GlobalRole, Project, User
from chalicelib.engine.quotas import quota_of, token_usage, usage_of
from chalicelib.errors import Conflict, Contended, Forbidden, Invalid
from chalicelib.planning.kernel.snapshot import FleetView, NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.quotas import Amounts, QuotaUsage, refusal, token_lines, usage_lines
from chalicelib.store import nouns
from chalicelib.usecases.audit_events import audit_event, project_target
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.people.users import find_user, named_user
from chalicelib.usecases.ports import ChangePorts, RecordPorts

AT_ONCE = 40  # waiting runs that the commit of a changed quota makes due; a pass over one checks all


@dataclass(frozen=True)
class UserShare:
    """A user's share of a project's quota."""

    username: str
    limits: Limits  # the user's own
    used: Amounts


@dataclass(frozen=True)
class QuotaView:
    quota: Quota
    used: Amounts
    shares: tuple[UserShare, ...]  # of users with limits of their own and, if users have limits, of those who use some


def view(plane: RecordPorts, project: Project) -> QuotaView:
    quota = plane.read.find(Quota, keys.quota(project.id)) or Quota(id=project.id, project_name=project.name)
    usage = usage_of(plane.read, quota, plane.read.fleet_views(project.id), plane.clock.now())
    using = usage.users if quota.by_user else ()
    ids = sorted({*quota.users, *using} - {EACH_USER})
    found = nouns.find_many(plane.store, User, [keys.user(user_id) for user_id in ids])
    shares = [
        UserShare(user.name, quota.users.get(user.id, NONE), usage.users.get(user.id, Amounts()))
        for user in found
        if user is not None
    ]
    return QuotaView(quota, usage.all, tuple(sorted(shares, key=lambda share: share.username)))


def lines(
    plane: RecordPorts,
    user: User,
    project: Project,
    fleets: Sequence[FleetView],
    planned: Iterable[tuple[Sequence[Offer], int]],
) -> Iterator[str]:
    """The lines of a plan about the quota, and about the caller's token if that has a limit. `planned`: the offers of
    each group of nodes, beginning with the one that would be taken, and the number of its nodes."""
    if user.limit is not None:
        yield from token_lines(user.limit, token_usage(plane.read, [user.limit], plane.clock.now())[user.limit.id])
    quota = quota_of(plane.read, project.id)
    if quota is None:
        return
    usage: QuotaUsage = usage_of(plane.read, quota, fleets, plane.clock.now())
    yield from usage_lines(usage, user.id, user.name)
    groups = [(len(offers[0].instance.resources.gpus) if offers else 0, nodes) for offers, nodes in planned]
    need = Amounts(sum(gpus * nodes for gpus, nodes in groups), sum(nodes for _, nodes in groups))
    if wait := refusal(usage, user.id, user.name, need):
        yield f"the run will wait {wait}"


def limits_of(plane: RecordPorts, project: Project, username: str | None) -> Limits | None:
    """The limits of `username`, of each user without own limits if that is empty, or of the whole project if it is
    None. None: there are none."""
    quota = plane.read.find(Quota, keys.quota(project.id))
    if quota is None:
        return None
    if username is None:
        return None if quota.limits.empty else quota.limits
    if not username:
        return quota.users.get(EACH_USER)
    user = find_user(plane.store, username)
    return None if user is None else quota.users.get(user.id)


# --- changing --------------------------------------------------------------------------------------------------------


def set_limits(
    plane: ChangePorts, actor: User, project: Project, username: str | None, changes: Mapping[str, Any]
) -> None:
    """Set limits of `username`, of each user without own limits if that is empty, or of the whole project if it is
    None. Limits that `changes` doesn't name stay as they are."""
    if username is None and actor.role is not GlobalRole.admin:
        raise Forbidden(
            "Only a global admin may set the quota of a whole project; its own admins set those of its users"
        )
    user_id = EACH_USER if not username else named_user(plane.store, username).id
    for _ in range(TRIES):
        now = plane.clock.now()
        found = plane.read.find(Quota, keys.quota(project.id))
        quota = found or Quota(id=project.id, project_name=project.name)
        changed = _changed(quota, None if username is None else user_id, changes)
        if changed == quota:
            return
        try:
            _commit(plane, actor, project, quota, changed, now, _detail(username, changes))
        except Conflict:
            continue  # a run was placed meanwhile: try again
        return
    raise Contended(f"The quota of the project {project.name} keeps changing.", hint="Try again.")


def _changed(quota: Quota, user_id: str | None, changes: Mapping[str, Any]) -> Quota:
    if user_id is None:
        return quota.with_(limits=quota.limits.with_(**changes))
    limits = quota.users.get(user_id, NONE).with_(**changes)
    users = {key: each for key, each in {**quota.users, user_id: limits}.items() if not each.empty}
    if len(users) > MOST_USERS:
        raise Invalid(f"At most {MOST_USERS} users of a project can have limits of their own.")
    return quota.with_(users=users)


def _commit(
    plane: ChangePorts, actor: User, project: Project, quota: Quota, changed: Quota, now: Micros, detail: str
) -> None:
    waiting = _waiting(plane, project.id)
    draft = Draft(now)
    for noun in (changed, *(job.with_(due_at=now) for job in waiting)):
        draft.save(noun)
    draft.wake(f"queue/{project.id}")
    seed = f"{project.id}/quota/{quota.version}"
    event = audit_event(
        EventType.changed, now, project_target(project), project_id=project.id, seed=seed, actor=actor, detail=detail
    )
    plane.committer.take(
        NounsSnapshot(now, (quota, *waiting)), draft.plan(), [nouns.put(event), undeleted(plane.store, project)]
    )


def _waiting(plane: RecordPorts, project_id: str) -> list[Job]:
    """The first jobs in the project's queue, for which there may be more room now, or less."""
    page = plane.store.query("gsi1", keys.queue_of(project_id), limit=AT_ONCE)
    return [job for job in plane.read.find_many(Job, [record.key for record in page.records]) if job and job.queued]


def _detail(username: str | None, changes: Mapping[str, Any]) -> str:
    whose = "" if username is None else f" of {username or 'each user'}"
    changed = ", ".join(f"{name} {'unlimited' if most is None else f'{most:g}'}" for name, most in changes.items())
    return f"quota{whose}: {changed}"
