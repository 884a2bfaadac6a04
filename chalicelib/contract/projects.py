"""Projects, their members, quotas and secrets, and what they share."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

from chalicelib.contract.users import User
from chalicelib.contract.values import Date, Id, ProjectRole


class ProjectBackendConfig(TypedDict):
    type: str
    regions: list[str]


class ProjectBackend(TypedDict):
    name: str
    config: ProjectBackendConfig


class MemberPermissions(TypedDict):
    can_manage_ssh_fleets: bool
    can_manage_secrets: bool


class Member(TypedDict):
    user: User
    project_role: ProjectRole
    permissions: MemberPermissions


class Limits(TypedDict):
    """Null: no limit."""

    gpus: int | None
    jobs: int | None
    money: float | None
    """Dollars a day (UTC)."""


class Used(TypedDict):
    gpus: int
    jobs: int
    money: float | None
    """Null where it isn't limited, and so not counted."""


class UserQuota(TypedDict):
    username: str
    limits: Limits
    used: Used


class Quota(TypedDict):
    """The limits of a project and of its users, and what is used of them."""

    project_name: str
    limits: Limits
    used: Used
    each_user: Limits
    """Of each user without limits of their own."""
    users: list[UserQuota]


class Project(TypedDict):
    """A project. A list leaves out members and backends."""

    project_id: Id
    project_name: str
    owner: User
    created_at: Date
    backends: list[ProjectBackend]
    members: list[Member]
    is_public: bool
    templates_repo: None
    quota: NotRequired[Quota]
    """In the answer of `get`, for callers inside the project."""


class ProjectPage(TypedDict):
    total_count: int
    projects: list[Project]


class Secret(TypedDict):
    id: Id
    name: str
    value: str | None
    """Null in lists."""


class FleetReference(TypedDict):
    id: Id
    name: str


class ProjectReference(TypedDict):
    project_name: str


class Export(TypedDict):
    """What a project shares, and with which projects."""

    id: Id
    name: str
    is_global: bool
    imports: list[ProjectReference]
    exported_fleets: list[FleetReference]
    exported_gateways: list[FleetReference]
    """Always empty: gateways can't be shared."""


class ImportedExport(TypedDict):
    id: Id
    name: str
    project_name: str
    exported_fleets: list[FleetReference]
    exported_gateways: list[FleetReference]


class Import(TypedDict):
    """What another project shares with this one."""

    id: Id
    export: ImportedExport
