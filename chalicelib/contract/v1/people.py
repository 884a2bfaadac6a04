"""Projects with their members, secrets, quotas and backends; users."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Date, GlobalRole, Id, ProjectRole


class V1Project(TypedDict):
    id: Id
    name: str
    url: str
    owner: str
    public: bool
    created_at: Date


class V1ProjectPage(TypedDict):
    items: list[V1Project]
    next: str | None


class V1Member(TypedDict):
    user: str
    role: ProjectRole
    url: str


class V1MemberPage(TypedDict):
    items: list[V1Member]
    next: str | None


class V1SecretSummary(TypedDict):
    name: str
    url: str
    updated_at: Date


class V1Secret(V1SecretSummary):
    value: str


class V1SecretPage(TypedDict):
    items: list[V1SecretSummary]
    next: str | None


class V1Limits(TypedDict):
    """Null: no limit."""

    gpus: int | None
    jobs: int | None
    usd_per_day: float | None


class V1Used(TypedDict):
    gpus: int
    jobs: int
    usd_today: float | None
    """Counted only if it is limited."""


class V1UserQuota(TypedDict):
    user: str
    limits: V1Limits
    used: V1Used


class V1Quota(TypedDict):
    limits: V1Limits
    """Of the project as a whole."""
    used: V1Used
    each_user: V1Limits
    """Of users without limits of their own."""
    users: list[V1UserQuota]


class V1Backend(TypedDict):
    type: str
    url: str
    source: Literal["api", "file"]
    """`file`: it is configured in the server's file, and can be changed only there."""
    config: dict[str, Any]
    """Its secrets are hidden."""
    changed_at: Date


class V1Backends(TypedDict):
    items: list[V1Backend]


class V1User(TypedDict):
    id: Id
    name: str
    url: str
    role: GlobalRole
    email: str | None
    active: bool
    created_at: Date


class V1CallerToken(TypedDict):
    verbs: list[str]
    """What it may do."""
    projects: list[str]
    """Those that it is for; none: all of the user's."""


class V1Caller(V1User):
    token: V1CallerToken | None
    """The access token that was sent, such as a page's of the console; null for the user's own, or a sign-on's."""


class V1NewUser(V1User):
    token: str | None
    """Shown this once: the answer to a repeated request hasn't got it."""


class V1UserPage(TypedDict):
    items: list[V1User]
    next: str | None
