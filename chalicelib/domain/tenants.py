"""Users, projects, members and their rights. Tokens are stored only as SHA-256."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun, Value
from chalicelib.domain.spending import DailyLimit

PROJECT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,50}")
USER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,60}")
SECRET_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
MAX_SECRET = 5_000  # characters of a secret's value


def hash_token(token: str) -> str:
    """The stored form of a token. Tokens are long and random, so a plain hash can't be brute-forced."""
    return hashlib.sha256(token.encode()).hexdigest()


class GlobalRole(StrEnum):
    admin = "admin"
    user = "user"


class ProjectRole(StrEnum):
    admin = "admin"
    manager = "manager"
    user = "user"


class PublicKey(Value):
    """A key with which a user logs in to jobs."""

    id: str
    added_at: Micros
    name: str
    line: str  # its type and its data

    @property
    def type(self) -> str:
        return self.line.partition(" ")[0]

    @property
    def fingerprint(self) -> str:
        """As OpenSSH writes it."""
        digest = hashlib.sha256(b64decode(self.line.partition(" ")[2])).digest()
        return "SHA256:" + b64encode(digest).decode().rstrip("=")


class User(Noun):
    kind: ClassVar[str] = "user"

    id: str
    name: str
    role: GlobalRole = GlobalRole.user
    email: str | None = None
    active: bool = True
    created_at: Micros
    token_hash: str
    signed_off_at: Micros = 0  # tokens from sign-ons before this time are invalid
    admin_by: str = ""  # the account provider whose groups made them a global admin, and may revoke that
    ssh_public_key: str = ""
    ssh_private_key: str = ""  # sealed (see store.seal): never in the clear at rest
    identities: tuple[str, ...] = ()  # hashes of the accounts with which this user signs on
    public_keys: tuple[PublicKey, ...] = ()  # their own, oldest first
    by_token: str = Field(default="", exclude=True)  # as a caller: the name of their access token, for the history
    limit: DailyLimit | None = Field(default=None, exclude=True)  # as a caller: their access token's

    def place(self) -> keys.Place:
        return keys.Place(keys.user(self.id))


class Admins(Noun):
    """The active global admins. Written whenever their number changes, so that two who revoke each other's rights at
    the same time can't leave none."""

    ids: tuple[str, ...]

    def place(self) -> keys.Place:
        return keys.Place(keys.admins())


@dataclass(frozen=True)
class Permissions:
    """What users who aren't admins may do; `server/config.yml` can change it."""

    allow_non_admins_create_projects: bool = True
    allow_non_admins_manage_ssh_fleets: bool = True
    allow_managers_manage_secrets: bool = False
    allow_non_admins_run_privileged: bool = False
    allow_non_admins_run_unisolated: bool = False

    def create_projects(self, user: User) -> bool:
        return self.allow_non_admins_create_projects or user.role is GlobalRole.admin

    def manage_ssh_fleets(self, user: User, role: ProjectRole | None) -> bool:
        return self.allow_non_admins_manage_ssh_fleets or _admin(user, role)

    def end_hosts(self, user: User, role: ProjectRole | None, creator_id: str) -> bool:
        """May the user end hosts that weren't bought? Those come back only if somebody adds them again."""
        trusted = role is ProjectRole.manager or _admin(user, role)
        return self.manage_ssh_fleets(user, role) and (trusted or creator_id == user.id)

    def manage_secrets(self, user: User, role: ProjectRole | None) -> bool:
        return (self.allow_managers_manage_secrets and role is ProjectRole.manager) or _admin(user, role)

    def run_privileged(self, user: User, role: ProjectRole | None) -> bool:
        return self.allow_non_admins_run_privileged or _admin(user, role)

    def run_unisolated(self, user: User, role: ProjectRole | None) -> bool:
        return self.allow_non_admins_run_unisolated or _admin(user, role)


def may_reach(user: User, role: ProjectRole | None, owner_id: str | None) -> bool:
    """May the user log in to the jobs of this owner's run? `role`: in the run's project."""
    if not user.active:
        return False
    own = role is not None and user.id == owner_id
    return own or user.role is GlobalRole.admin or role in (ProjectRole.manager, ProjectRole.admin)


def _admin(user: User, role: ProjectRole | None) -> bool:
    return user.role is GlobalRole.admin or role is ProjectRole.admin


class Project(Noun):
    kind: ClassVar[str] = "project"

    id: str
    name: str
    owner_id: str
    created_at: Micros
    is_public: bool = False
    deleted: bool = False

    def place(self) -> keys.Place:
        return keys.Place(keys.project(self.id))


class Member(Noun):
    project_id: str
    user_id: str
    role: ProjectRole
    num: int = 0  # position in lists
    given_by: str = ""  # the account provider whose groups gave the role, and may change or revoke it

    def place(self) -> keys.Place:
        key = keys.member(self.project_id, self.user_id)
        return keys.Place(key, (keys.member_of(self.user_id), self.project_id))


class Secret(Noun):
    kind: ClassVar[str] = "secret"

    id: str
    project_id: str
    name: str
    sealed: str  # envelope-encrypted value
    updated_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.secret(self.project_id, self.name))


class Repo(Noun):
    id: str
    project_id: str
    repo_id: str
    info: str  # JSON
    creds_sealed: str = ""

    def place(self) -> keys.Place:
        return keys.Place(keys.repo(self.project_id, self.repo_id))


def archive_id(owner_id: str, hash_: str) -> str:
    """The id of an archive: the same for the same content of the same owner."""
    return derive(owner_id, "archive", hash_)


class Archive(Noun):
    """An uploaded archive of files, or code of a repo; its bytes are in the blob store under `blob`."""

    id: str
    owner_id: str  # user for files, project for code
    hash: str
    blob: str
    size: int
    used_at: Micros = 0  # when it was last uploaded, requested or used, to the day
    submitted: bool = True  # a run was submitted with it
    charged_to: str = ""  # the user whose `UserUploads` includes it
    erased: bool = False  # its bytes are being deleted

    def place(self) -> keys.Place:
        partition = keys.ARCHIVES if self.submitted else keys.UNUSED_ARCHIVES
        return keys.Place(keys.archive(self.id), keys.by_time(partition, self.used_at, self.id))


LEAST_CHARGE = 4096  # bytes, because each archive has records besides


class UserUploads(Noun):
    """The size of a user's archives on the server, written in the commits that store and erase them."""

    id: str  # the user's
    size: int = 0  # bytes

    def plus(self, size: int) -> UserUploads:
        return self.with_(size=self.size + max(size, LEAST_CHARGE))

    def minus(self, size: int) -> UserUploads:
        return self.with_(size=max(0, self.size - max(size, LEAST_CHARGE)))

    def place(self) -> keys.Place:
        return keys.Place(keys.uploads(self.id))
