"""Users, their credentials and keys, and the ways to sign on."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Date, GlobalRole, Id


class UserPermissions(TypedDict):
    can_create_projects: bool


class User(TypedDict):
    """A user, and their role on the whole server."""

    id: Id
    username: str
    created_at: Date
    global_role: GlobalRole
    email: str | None
    active: bool
    permissions: UserPermissions
    ssh_public_key: str


class UserCreds(TypedDict):
    token: str
    """Empty unless the caller just created it or called with it: only its hash is stored."""


class UserWithCreds(User):
    creds: UserCreds
    ssh_private_key: str | None


class UserPage(TypedDict):
    total_count: int
    users: list[User]


class PublicKey(TypedDict):
    """A key with which a user logs in to jobs."""

    id: Id
    added_at: Date
    name: str
    type: str
    fingerprint: str
    """As OpenSSH writes it."""


Verb = Literal["read", "run", "fleets", "project", "server"]
"""What a token may do."""


class AccessToken(TypedDict):
    """A program's token, with which it may do less than its user."""

    id: Id
    name: str
    created_at: Date
    expires_at: Date
    verbs: list[str]
    projects: list[str]
    """Empty: all of the user's."""
    dollars_a_day: float | None
    """What its runs may cost a day (UTC); null: no limit."""
    spent_today: float | None
    """What they have cost today, in dollars; null: no limit."""


class CreatedAccessToken(AccessToken):
    token: str
    """Shown only this once."""


class ScimToken(TypedDict):
    """A token with which a company's directory calls SCIM, and nothing else."""

    id: Id
    name: str
    created_at: Date
    created_by: str
    """The admin who made it."""


class CreatedScimToken(ScimToken):
    token: str
    """Shown only this once."""


class SignInCode(TypedDict):
    """A code that signs a page of the console in."""

    code: str
    """Works once. Shown only in this answer."""
    expires_at: Date


class ProgramSignOn(TypedDict):
    """What a program gets for the token of the place where it runs, and a page for a code."""

    username: str
    """In whose name it acts."""
    access_token: AccessToken
    token: str
    """Its text, shown only this once."""


class SignOnProvider(TypedDict):
    name: str
    enabled: bool


class Authorization(TypedDict):
    authorization_url: str
    """To be opened in a browser."""


class NextRedirect(TypedDict):
    redirect_url: str | None
    """On the computer whose command line began the sign-on."""


class DeviceCode(TypedDict):
    """A code that a user types on another device, to sign this one on."""

    state: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    interval: int
    """Seconds between two questions whether somebody has signed on."""
    expires_in: int
