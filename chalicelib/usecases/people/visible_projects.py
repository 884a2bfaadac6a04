"""Which projects a caller's lists may show."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.tenants import GlobalRole, Member, Project, User
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import Store
from chalicelib.usecases.people.users import memberships


def projects_seen(
    store: Store, user: User, names: tuple[str, ...] | None, token: AccessToken | None = None
) -> list[Project]:
    """The user's projects (an admin: all), or those of them in `names`; with an access token, only those that it is
    for. Other projects are left out, as if they didn't exist."""
    if names is not None:
        found = [nouns.find_target(store, keys.project_name(name)) for name in dict.fromkeys(names)]
        ids = [target[0] for target in found if target is not None]
    elif user.role is GlobalRole.admin:
        ids = [nouns.pointed(record) for record in every(store, "projects", "name/")]
    else:
        ids = [member.project_id for member in memberships(store, user)]
    ids = [each for each in ids if token is None or token.includes(each)]
    projects = [p for p in nouns.find_many(store, Project, [keys.project(i) for i in ids]) if p and not p.deleted]
    if user.role is GlobalRole.admin or names is None:
        return projects
    members = nouns.find_many(store, Member, [keys.member(project.id, user.id) for project in projects])
    return [project for project, member in zip(projects, members, strict=True) if member is not None]
