"""Three projects with people, an agent and canaries each, and those who belong to none.

A canary, `canary-<owner>_<what>`, is written here only: no call contains one. Names and ids of other things are
`handles`, which calls of every tenant use, so that each asks for the others' by name.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from chalicelib.api import dispatch
from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from tests.api.rig import ADMIN, Rig, fleet, task
from tests.api.uploads import multipart, send, tar, upload
from tests.fuzz.watch import Caller, Ground, Watched
from tests.usecases.cluster import FACTS, OFFER
from tests.world.time import NOW

TENANTS = ("red", "green", "blue")  # green is public
SHOWN = "seen"  # a run and a fleet that calls name; what a canary names they don't
Handles = dict[str, list[Any]]


@dataclass
class Town:
    """The control plane with its tenants."""

    rig: Rig
    ground: Ground
    store: Watched
    callers: list[Caller] = field(default_factory=list)
    handles: dict[str, Handles] = field(default_factory=dict)  # by tenant
    effects: list[Effect] = field(default_factory=list)

    def submit(self, effect: Effect) -> None:
        """The engine's effects stay undone."""
        self.effects.append(effect)

    @classmethod
    def at(cls, folder: Path) -> Town:
        rig = Rig.at(folder)
        rig.world.plane.store.close()
        store = Watched(folder / "plane.db", now=rig.world.clock.seconds)
        rig.world.plane = replace(rig.world.plane, store=store)
        town = cls(rig, Ground(store, {"main": rig.project.id}), store)
        for name in TENANTS:
            Tenant(town, name).build()
        green = town.ground.projects["green"]
        rig.save(nouns.read(Project, rig.record(keys.project(green))).with_(is_public=True))
        town._strangers()
        store.take_written()
        rig.world.woken.clear()
        return town

    def _strangers(self) -> None:
        loner = self.rig.user("loner")
        self.give_key("loner", "canary-loner_sshkey")
        self.callers += [
            Caller("nobody", None, "red"),
            Caller("forger", "0" * 32, "blue"),
            Caller("loner", loner, "red", self._user_id("loner")),
            Caller("root", ADMIN, "green", self._user_id("admin")),
        ]
        self.ground.users["loner"] = self._user_id("loner")

    def give_key(self, name: str, private: str) -> User:
        plane, key = self.rig.world.plane, keys.user(self._user_id(name))
        user = nouns.read(User, self.rig.record(key))
        sealed = plane.seal.seal(private, context=f"user/{user.id}")
        self.rig.save(user.with_(ssh_private_key=sealed))
        return nouns.read(User, self.rig.record(key))

    def _user_id(self, name: str) -> str:
        found = nouns.find_target(self.store, keys.user_name(name))
        assert found is not None
        return found[0]

    def send(self, request: dispatch.Request) -> dispatch.Reply:
        return dispatch.answer(self.rig.world.plane, request)

    def learn(self, caller: Caller, request: dispatch.Request, reply: dispatch.Reply) -> None:
        """A new token replaces the old one, as a client would remember it."""
        if reply.status != 200 or not request.path.endswith(("/refresh_token", "/agent/sync")):
            return
        answer = orjson.loads(reply.body)
        if caller.agent_of:
            caller.token = answer.get("credential", caller.token)
        else:
            token = answer["creds"]["token"]
            for each in self.callers:
                each.token = token if each.name == answer["username"] else each.token

    def handles_of(self, tenant: str) -> Handles:
        return self.handles.get(tenant, {})

    def close(self) -> None:
        self.store.close()


Answerer = Callable[[Town, dispatch.Request], dispatch.Reply]


@dataclass
class Tenant:
    """Builds one project."""

    town: Town
    name: str

    def build(self) -> None:
        town, rig, name = self.town, self.town.rig, self.name
        project = rig.another_project(name)
        town.ground.projects[name] = project.id
        self.project = project
        for role in ProjectRole:
            self.person(f"{name}{role.value}", role)
        self.person(f"{name}gone", ProjectRole.admin)
        rig.deactivate(f"{name}gone")
        self.admin = next(c.token for c in town.callers if c.name == f"{name}admin") or ""
        archive = self.things()
        runs = {run: self.run(run, archive) for run in (SHOWN, f"canary-{name}-run")}
        self.host(runs[SHOWN], archive)

    def ok(self, path: str, body: Any) -> Any:
        return self.town.rig.ok(path.replace("P/", f"/api/project/{self.name}/", 1), body, token=self.admin)

    def person(self, name: str, role: ProjectRole) -> None:
        """A user whose e-mail address is the project's to see, and whose SSH key is nobody else's."""
        rig = self.town.rig
        token = rig.user(name, role, self.project)
        user = self.town.give_key(name, f"canary-{name}_sshkey")
        rig.save(user.with_(email=f"canary-{self.name}_mail@example.org"))
        user_id = user.id
        self.town.ground.users[name] = user_id
        self.town.callers.append(Caller(name, token, self.name, user_id))

    def things(self) -> dict[str, str]:
        """A secret, a repo, archives, fleets: one of each to be named by calls, one to be never."""
        for name in (SHOWN, f"canary-{self.name}_secretname"):
            self.ok("P/secrets/create_or_update", {"name": name, "value": f"canary-{self.name}_secret"})
        for name in (SHOWN, f"canary-{self.name}_repo"):
            info = {"repo_type": "virtual"}
            creds = {"clone_url": f"https://canary-{self.name}_host/x.git", "oauth_token": f"canary-{self.name}_oauth"}
            self.ok("P/repos/init", {"repo_id": name, "repo_info": info, "repo_creds": creds})
        code = tar(("a.py", f"canary-{self.name}_code".encode()))
        upload(
            self.town.rig, f"/api/project/{self.name}/repos/upload_code", multipart(code),
            query={"repo_id": SHOWN}, token=self.admin,
        )  # fmt: skip
        for name in (SHOWN, f"canary-{self.name}-fleet"):
            spec = fleet(name, env={"TEXT": f"canary-{self.name}_fleetenv"}, tags={"t": f"canary-{self.name}_tag"})
            self.ok("P/fleets/apply", {"plan": {"spec": spec}, "force": False})
        content = tar(("a", f"canary-{self.name}_archive".encode()))
        uploaded: dict[str, str] = upload(
            self.town.rig, "/api/files/upload_archive", multipart(content), token=self.admin
        ).json
        return uploaded

    def run(self, name: str, archive: dict[str, str]) -> dict[str, Any]:
        files = {"files": [{"local_path": "a", "path": "/a"}]}
        spec = task(
            name, env={"TEXT": f"canary-{self.name}_env"}, commands=[f"echo canary-{self.name}_command"], **files
        )
        spec["file_archives"] = [{"id": archive["id"], "path": "/a"}]
        made: dict[str, Any] = self.ok("P/runs/apply", {"plan": {"run_spec": spec, "current_resource": None}})
        return made

    def host(self, run: dict[str, Any], archive: dict[str, str]) -> None:
        """An instance whose agent runs the job, and has said so."""
        town, rig, plane = self.town, self.town.rig, self.town.rig.world.plane
        found = nouns.find_target(town.store, keys.fleet_name(self.project.id, SHOWN))
        assert found is not None
        of = nouns.read(Fleet, rig.record(keys.fleet(found[0])))
        job = nouns.read(Job, rig.record(keys.job(run["id"], 0, 0, 0)))
        instance_id = plane.random_id()
        where = Assignment(
            instance_id=instance_id, instance_name="seen-0", fleet_id=of.id, fleet_name=of.name, offer=OFFER,
            assigned_at=NOW,
        )  # fmt: skip
        rig.save(
            Instance(
                id=instance_id, project_id=self.project.id, fleet_id=of.id, fleet_name=of.name, num=0, name="seen-0",
                offer=OFFER, status=InstanceStatus.busy, created_at=NOW, last_processed_at=NOW,
                claims=(Claim(job_id=job.id, run_id=job.run_id, blocks=(0,)),),
            ),
            job.with_(status=JobStatus.provisioning, assignment=where),
            of.with_(next_instance_num=1),
        )  # fmt: skip
        boot = bootstrap_token(plane.install_key, instance_id, 0)
        agent = Caller(f"{self.name}agent", boot, self.name, agent_of=self.project.id, instance=instance_id)
        self.join(agent, job)
        town.callers.append(agent)
        town.handles[self.name] = self.handles(run, job, of, instance_id, archive)

    def join(self, agent: Caller, job: Job) -> None:
        line = base64.b64encode(f"canary-{self.name}_log".encode()).decode()
        parts: list[dict[str, Any]] = [
            {"facts": FACTS},
            {},
            {"logs": [{"task": job.id, "offset": 0, "records": [[NOW, line]]}]},
        ]
        for part in parts:
            agent.seq += 1
            head = {"v": 1, "instance": agent.instance, "boot": "boot-1", "seq": agent.seq}
            head["tasks"] = [{"id": job.id, "state": "running"}]  # one that isn't listed is lost
            reply = send(self.town.rig, "POST", "/agent/sync", orjson.dumps({**head, **part}), token=agent.token or "")
            assert reply.status == 200, reply.body
            agent.token = reply.json.get("credential", agent.token)

    def handles(self, run: Any, job: Job, of: Fleet, instance: str, archive: dict[str, str]) -> Handles:
        people = [f"{self.name}{role}" for role in ("admin", "manager", "user", "gone")]
        return {
            "run_name": [SHOWN], "runs_names": [[SHOWN]], "names": [[SHOWN]], "name": [SHOWN], "fleets": [[SHOWN]],
            "project_name": [self.name], "projects_names": [[self.name]], "secrets_names": [[SHOWN]],
            "repo_id": [SHOWN, "none"], "repos_ids": [[SHOWN]], "hash": [archive["hash"]],
            "id": [run["id"], of.id, job.id],
            "run_id": [run["id"]], "job_submission_id": [job.id], "fleet_ids": [[of.id]], "prev_run_id": [run["id"]],
            "prev_id": [of.id, instance, run["id"]], "username": people, "usernames": [people[:1], people],
            "users": [people[1:2]], "target_runs": [[run["id"]]], "target_fleets": [[of.id]],
            "target_projects": [[self.project.id]], "target_instances": [[instance]], "target_jobs": [[job.id]],
            "target_users": [[self.town.ground.users[people[0]]]], "within_projects": [[self.project.id]],
            "within_fleets": [[of.id]], "within_runs": [[run["id"]]], "actors": [[self.town.ground.users[people[0]]]],
            "archive_id": [archive["id"], self.project.id], "instance": [instance], "task": [job.id],
            "file_archives": [[], [{"id": archive["id"], "path": "/a"}]], "instance_nums": [[0]],
            "repo_code_hash": [None, archive["hash"]],
        }  # fmt: skip
