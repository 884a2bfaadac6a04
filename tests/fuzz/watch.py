"""What no call may do: fail, show a stranger's text, or write a stranger's record."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson

from chalicelib.api.dispatch import Reply
from chalicelib.domain import keys
from chalicelib.domain.keys import Key
from chalicelib.domain.tenants import GlobalRole, Project, User
from chalicelib.store import nouns
from chalicelib.store.port import Change, Check, Put
from chalicelib.store.sqlite import SqliteStore

CANARY = re.compile(rb"canary-(\w+)")
CODED = re.compile(rb"Y2FuYXJ5[\w+/]+")  # base64 that begins with "canary"
_INTERNALS = (b"Traceback (most recent", b'File "/')


class Watched(SqliteStore):
    """Remembers what was written, and which project or user each partition belongs to."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.owners: dict[str, str] = {}  # partition → id of the project, or of the user
        self.written: list[Key] = []

    def commit(self, changes: Sequence[Change]) -> None:
        super().commit(changes)
        for change in changes:
            if isinstance(change, Put):
                self._learn(change)
            if not isinstance(change, Check):
                self.written.append(change.key)

    def _learn(self, change: Put) -> None:
        partition = change.key.pk
        kind, _, name = partition.partition("/")
        if kind in ("project", "events", "closing", "user"):
            self.owners[partition] = name
        elif partition not in self.owners:
            body = orjson.loads(change.record.body)
            owner = body.get("project_id") or body.get("owner_id") or (body.get("id") if kind == "token" else None)
            if owner is not None:
                self.owners[partition] = owner

    def take_written(self) -> list[Key]:
        found, self.written = self.written, []
        return found


@dataclass
class Caller:
    """Who sends a call: a person, an agent, or nobody that we know."""

    name: str
    token: str | None
    home: str  # the tenant whose things it mostly asks for
    user_id: str = ""
    agent_of: str = ""  # the id of the project whose instance it is
    instance: str = ""
    seq: int = 0


@dataclass(frozen=True)
class Standing:
    """What a caller is at this moment. Calls change it: they add members, deactivate users, make admins."""

    known: bool = False
    mighty: bool = False  # a global admin, whom nothing is hidden from
    projects: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Ground:
    """What is to be kept apart: projects by the name of their tenant, and users by theirs."""

    store: Watched
    projects: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)

    def standing(self, caller: Caller) -> Standing:
        if caller.agent_of:
            return Standing(known=True, projects=frozenset({caller.agent_of}))
        user = nouns.find(self.store, User, keys.user(caller.user_id)) if caller.user_id else None
        if user is None or not user.active:
            return Standing()
        ids = list(self.projects.values())
        found = self.store.get_many([keys.member(project_id, user.id) for project_id in ids])
        own = frozenset(project_id for project_id, record in zip(ids, found, strict=True) if record is not None)
        return Standing(True, user.role is GlobalRole.admin, own)

    def public(self) -> set[str]:
        found = nouns.find_many(self.store, Project, [keys.project(each) for each in self.projects.values()])
        return {project.id for project in found if project is not None and project.is_public}


def seen(ground: Ground, caller: Caller, standings: Sequence[Standing], body: bytes) -> Iterator[str]:
    """Texts in an answer that the caller could read neither before the call nor after. Addresses
    are every user's: who adds a user to a project sees them there."""
    if any(standing.mighty for standing in standings):
        return
    own = {each for standing in standings for each in standing.projects}
    known = {caller.name, *(tenant for tenant, project_id in ground.projects.items() if project_id in own)}
    mails = standings[0].known and not caller.agent_of
    for found in canaries(body):
        if mails and found.endswith("_mail"):
            continue
        if found.partition("_")[0] not in known:
            yield f"{caller.name} reads canary-{found}"


def canaries(body: bytes) -> set[str]:
    """The canaries in a text, and in what it has as base64."""
    found = set(CANARY.findall(body))
    for coded in CODED.findall(body):
        found |= set(CANARY.findall(base64.b64decode(coded[: len(coded) // 4 * 4])))
    return {name.decode() for name in found}


def wrote(ground: Ground, caller: Caller, before: Standing, public: set[str], written: list[Key]) -> Iterator[str]:
    """Records that weren't the caller's to write when it called."""
    if before.mighty:
        return
    if not before.known:
        yield from (f"{caller.name}, who may do nothing, writes {key}" for key in written)
        return
    guarded = {*ground.projects.values(), *ground.users.values()} - before.projects - {caller.user_id}
    for key in written:
        if key == keys.rights():  # only says that something has changed; whoever changes their own key may say it
            continue
        owner = ground.store.owners.get(key.pk, "")
        joins = owner in public and _joining(owner, caller.user_id, key, written)
        everybodys = key.pk in ("users", "sightings") and key != keys.rights()  # that says only that something changed
        if (owner in guarded and not joins) or everybodys:
            yield f"{caller.name} writes {key}"


def _joining(project_id: str, user_id: str, key: Key, written: list[Key]) -> bool:
    """Is it one of the records that change when a user joins a public project? Anybody may."""
    member = keys.member(project_id, user_id)
    own = key in (member, keys.project(project_id)) or key.pk == f"events/{project_id}"
    return own and member in written


def failed(reply: Reply) -> Iterator[str]:
    """What is wrong with a reply whoever asked."""
    if reply.status == HTTPStatus.SEE_OTHER:
        if not re.fullmatch(r"\.\./\.\./#[\w.~%+=&-]*", reply.headers.get("Location", "")):
            yield f"it sends a browser to {reply.headers.get('Location')!r}"
    elif not (200 <= reply.status < 300 or 400 <= reply.status < 500):
        yield f"status {reply.status}"
    if any(internal in reply.body for internal in _INTERNALS):
        yield "a traceback in the answer"
    problem = reply.headers.get("Content-Type") == "application/problem+json"
    if reply.headers.get("Content-Type") != "application/json" and not problem:
        return
    if not reply.body and 200 <= reply.status < 400:
        return  # a resource that is gone, or going
    try:
        value = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        yield "an answer that is no JSON"
        return
    if problem:
        yield from _no_problem(value, reply.status)
    elif reply.status in (400, 422):
        yield from _unclear(value["detail"])


def _no_problem(value: Any, status: int) -> Iterator[str]:
    """Is it none as in RFC 9457?"""
    texts = [value["detail"], *(each["detail"] for each in value["errors"])]
    if value["status"] != status or not value["code"] or value["type"] != f"/docs#problem-{value['code']}":
        yield "a problem that isn't what it says"
    if any(not text or any(ord(c) < 32 and c != "\n" for c in text) for text in texts):
        yield "a problem that says nothing, or can't be printed"


def _unclear(detail: Any) -> Iterator[str]:
    if not (isinstance(detail, list) and len(detail) == 1 and detail[0].keys() <= {"msg", "code", "fields"}):
        yield "a refusal that clients can't show"
    elif not detail[0]["msg"] or any(ord(c) < 32 and c != "\n" for c in detail[0]["msg"]):
        yield "a refusal that says nothing, or can't be printed"
