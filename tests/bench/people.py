"""`projects/list` among 10,000 users and 1,000 projects, and what it takes to know who asks: CPU in this process.

Each user is a member of one project, as one of ten. One of them asks, whose projects nobody else sees, and the admin of
the installation, who sees all: a whole page, as clients ask for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from chalicelib.api import dispatch
from chalicelib.api.auth import authorise
from chalicelib.api.route import Access, Route
from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.tenants import Member, Project, ProjectRole, User, hash_token
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.server_file import declared
from chalicelib.runtime.settings import server_settings
from chalicelib.store import nouns
from chalicelib.store.port import MAX_CHANGES, Change, Store
from chalicelib.usecases.context import Plane
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.people.projects import name_of
from tests.bench.measure import cpu_ms, report

TOKEN = "bench-token"
USERS, PROJECTS = 10_000, 1_000
CALLS = 200  # of one sample of the authorisation: it is short


def add_people(store: Store) -> None:
    changes: list[Change] = []
    for number in range(PROJECTS):
        owner, name = derive("bench", "user", number), f"project-{number}"
        project = Project(id=derive("bench", "project", number), name=name, owner_id=owner, created_at=number + 1)
        changes += [nouns.put(project), name_of(project)]
    for number in range(USERS):
        hashed, name = hash_token(f"token-{number}"), f"user-{number}"
        key = f"ssh-ed25519 {number:068d}\n"
        user = User(id=derive("bench", "user", number), name=name, created_at=1, token_hash=hashed, ssh_public_key=key)
        role = ProjectRole.admin if number < PROJECTS else ProjectRole.user
        member = Member(
            project_id=derive("bench", "project", number % PROJECTS), user_id=user.id, role=role, num=number
        )
        names = [nouns.pointer(each, user.id) for each in (keys.user_name(name), keys.token(hashed))]
        changes += [nouns.put(user), nouns.put(member), *names]
    for start in range(0, len(changes), MAX_CHANGES):
        store.commit(changes[start : start + MAX_CHANGES])


def listed(plane: Plane, token: str, count: int) -> None:
    headers = {"authorization": f"Bearer {token}"}
    reply = dispatch.answer(plane, dispatch.Request("POST", "/api/projects/list", {}, headers, b"{}"))
    if reply.status != 200 or reply.body.count(b'"project_id"') != count:
        raise SystemExit(f"projects/list: {reply.status}, {reply.body[:200].decode()}")


def admitted(plane: Plane) -> None:
    headers = {"authorization": "Bearer token-7"}
    route = Route("POST", "/api/x", Access.member, lambda call: None)
    for _ in range(CALLS):
        authorise(plane, route, headers, "project-7")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = server_settings({}, data_dir=Path(folder) / "data", config_path=Path(folder) / "config.yml")
        settings.data_dir.mkdir()
        plane = EmbeddedRoot(settings, declared(settings), "http://127.0.0.1").plane
        first_start(plane, TOKEN)
        add_people(plane.store)
        report(
            "people",
            authorise_cpu_ms=[sample / CALLS for sample in cpu_ms(lambda: admitted(plane))],
            projects_cpu_ms=cpu_ms(lambda: listed(plane, "token-7", 1)),
            all_projects_cpu_ms=cpu_ms(lambda: listed(plane, TOKEN, PROJECTS + 1)),
        )
        plane.store.close()


if __name__ == "__main__":
    main()
