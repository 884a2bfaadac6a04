"""Projects and their members on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chalicelib.api.wire.users import user_json
from chalicelib.domain.instants import iso
from chalicelib.domain.tenants import Member, Permissions, User
from chalicelib.usecases.people.projects import ProjectView

if TYPE_CHECKING:
    from chalicelib import contract


def project_json(
    seen: ProjectView, backends: Mapping[str, Sequence[str]], permissions: Permissions
) -> contract.Project:
    """`backends`: the wire's names of the configured ones, with the regions that each is confined to."""
    project = seen.project
    return {
        "project_id": project.id,
        "project_name": project.name,
        "owner": user_json(seen.owner, permissions),
        "created_at": iso(project.created_at),
        "backends": [
            {"name": name, "config": {"type": name, "regions": list(regions)}} for name, regions in backends.items()
        ],
        "members": [_member_json(member, user, permissions) for member, user in seen.members],
        "is_public": project.is_public,
        "templates_repo": None,
    }


def _member_json(member: Member, user: User, permissions: Permissions) -> contract.Member:
    return {
        "user": user_json(user, permissions),
        "project_role": member.role.value,
        "permissions": {
            "can_manage_ssh_fleets": permissions.manage_ssh_fleets(user, member.role),
            "can_manage_secrets": permissions.manage_secrets(user, member.role),
        },
    }
