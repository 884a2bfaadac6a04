"""The SSH keys that a job accepts: those of all users who may attach to it.

These are its run's user, and the current managers of its project and global admins.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job
from chalicelib.domain.tenants import Member, User, may_reach
from chalicelib.engine.read import Reader
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.usecases.people import rights_revision


@dataclass(frozen=True)
class LoginAccess:
    """The keys that may log in to a job, as of a revision."""

    revision: str
    keys: tuple[str, ...]


def access(read: Reader, job: Job) -> LoginAccess:
    revision = rights_revision.revision_of(read.store.get(keys.rights()))
    return LoginAccess(revision, tuple(keys_of(read, job)))


def keys_of(read: Reader, job: Job) -> list[str]:
    """The keys that the job accepts, beginning with the one that its run was submitted with and its user's own."""
    store = read.store
    run, body = read.run_and_body(job.run_id, job.deployment_num)
    owner = None if run is None else run.user_id
    members = [nouns.read(Member, record) for record in every(store, f"project/{job.project_id}", "member/")]
    roles = {member.user_id: member.role for member in members}
    wanted = dict.fromkeys([*([owner] if owner else []), *roles, *rights_revision.admins(store).ids])
    users = nouns.find_many(store, User, [keys.user(user_id) for user_id in wanted])
    lines: list[str] = []
    for user in users:
        if user is not None and may_reach(user, roles.get(user.id), owner):
            if user.id == owner and body is not None:
                lines.append(orjson.loads(body.run_spec).get("ssh_key_pub") or "")
            lines += [user.ssh_public_key, *(key.line for key in user.public_keys)]
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))
