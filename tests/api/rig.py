"""The API on a real store, called as its callers do; users of every role, and offers to plan with."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from chalicelib.api import dispatch
from chalicelib.domain import keys
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.keys import Key
from chalicelib.domain.offers import Disk, Offer
from chalicelib.domain.tenants import Member, Project, ProjectRole, User, hash_token
from chalicelib.store import nouns
from chalicelib.store.port import Record
from chalicelib.usecases.operator.first_start import first_start
from tests.world import nouns as b
from tests.world.plane import DATABASE, World, write_database
from tests.world.ports import Books, accounts

ADMIN = "admin-token"


def offer(name: str, price: float, *, cpus: int = 4, gpus: int = 0, gpu: str = "A100", region: str = "fra") -> Offer:
    has = b.resources(cpus, cpus * 4, gpus, gpu, disk=Disk(size_mib=204_800), cpu_arch="x86")
    return b.offer(name, price, backend="vultr", region=region, has=has)


OFFERS = (
    offer("small", 0.05, cpus=2),
    offer("large", 0.1, region="ewr"),
    offer("a100", 1.5, cpus=8, gpus=1),
    offer("h100x8", 20.0, cpus=64, gpus=8, gpu="H100", region="ewr"),
)


@cache
def _started() -> bytes:
    """A database with what the first start of a control plane creates, made once."""
    with tempfile.TemporaryDirectory() as folder:
        world = World.in_folder(Path(folder))
        first_start(world.plane, ADMIN)
        world.store.close()
        return (Path(folder) / DATABASE).read_bytes()


@dataclass
class Rig:
    world: World
    project: Project

    @classmethod
    def at(cls, folder: Path, **changes: Any) -> Rig:
        backends = accounts(BackendFacts(name="vultr"))
        write_database(folder, _started())
        world = World.in_folder(folder, **{"catalog": Books(OFFERS), "backends": backends, **changes})
        for _ in ("the admin", "the project"):
            world.plane.random_id()  # is its id
        _, project = first_start(world.plane, ADMIN)
        return cls(world, project)

    def call(
        self, path: str, body: Any = None, *, token: str | None = ADMIN, method: str = "POST", **headers: str
    ) -> Response:
        raw = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        sent = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        found = dispatch.answer(self.world.plane, dispatch.Request(method, path, {}, sent, raw))
        return Response(found.status, found.body)

    def ok(self, path: str, body: Any = None, *, token: str = ADMIN) -> Any:
        """The JSON of a call that must succeed. `P/` stands for the project."""
        reply = self.call(path.replace("P/", f"/api/project/{self.project.name}/", 1), body, token=token)
        assert reply.status == 200, reply.body
        return reply.json

    def refused(self, path: str, body: Any = None, *, token: str = ADMIN) -> str:
        """What a person reads when the call is refused."""
        reply = self.call(path.replace("P/", f"/api/project/{self.project.name}/", 1), body, token=token)
        assert reply.status == 400, (reply.status, reply.body)
        (entry,) = reply.json["detail"]
        assert entry.keys() <= {"msg", "code", "fields"}
        return str(entry["msg"])

    def user(self, name: str, role: ProjectRole | None = None, project: Project | None = None) -> str:
        """The token of a new user, who has `role` in the project."""
        plane = self.world.plane
        token = f"{name}-token"
        user = User(id=plane.random_id(), name=name, created_at=plane.clock.now(), token_hash=hash_token(token))
        names = [nouns.pointer(keys.user_name(name), user.id), nouns.pointer(keys.token(user.token_hash), user.id)]
        plane.store.commit([nouns.put(user), *names])
        if role is not None:
            self.save(Member(project_id=(project or self.project).id, user_id=user.id, role=role))
        return token

    def another_project(self, name: str) -> Project:
        plane = self.world.plane
        owner = nouns.find_target(plane.store, keys.user_name("admin"))
        assert owner is not None
        project = Project(id=plane.random_id(), name=name, owner_id=owner[0], created_at=plane.clock.now())
        plane.store.commit([nouns.put(project), nouns.pointer(keys.project_name(name), project.id)])
        return project

    def deactivate(self, name: str) -> None:
        store = self.world.plane.store
        found = nouns.find_target(store, keys.user_name(name))
        assert found is not None
        user = nouns.find(store, User, keys.user(found[0]))
        assert user is not None
        store.commit([nouns.put(user.with_(active=False))])

    def record(self, key: Key) -> Record:
        found = self.world.plane.store.get(key)
        assert found is not None
        return found

    def save(self, *changed: Any) -> None:
        self.world.plane.store.commit([nouns.put(noun) for noun in changed])


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


def task(name: str | None = "hello", **fields: Any) -> dict[str, Any]:
    configuration = {"type": "task", "commands": ["echo hello"], "resources": {"cpu": {"count": {"min": 1}}}, **fields}
    return {"run_name": name, "repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": configuration}


def fleet(name: str | None = "pool", **fields: Any) -> dict[str, Any]:
    configuration = {"type": "fleet", "nodes": {"min": 0, "target": 0, "max": 2}, **fields}
    return {"configuration": {**configuration, "name": name}, "profile": {"name": "default"}}


def submit(rig: Rig, spec: dict[str, Any], **more: Any) -> Any:
    return rig.ok("P/runs/apply", {"plan": {"run_spec": spec, "current_resource": None}, "force": False, **more})
