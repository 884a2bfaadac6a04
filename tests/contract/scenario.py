"""A day of a small control plane: calls whose answers are the examples of the OpenAPI document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from chalicelib.api import dispatch
from chalicelib.api.routes import ByName
from chalicelib.configuration.server import read_backend
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.restorations import Met, Restoration
from chalicelib.domain.usage import Part, StorageUsage
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.operator.backends import store
from chalicelib.usecases.runs.metrics import metric_puts
from docs.openapi.examples import presentable
from tests.api.rig import ADMIN, OFFERS, Response, Rig, fleet, task
from tests.api.test_fleets import add_instance
from tests.api.test_joins import BY_THEMSELVES
from tests.api.test_runs import job_of, placed
from tests.api.test_services import service
from tests.api.test_volumes import activate, volume
from tests.world.keyed import config
from tests.world.ports import Books, accounts
from tests.world.volumes import attachment

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAJfXpGgxCBxoFRSgXNqxQo84nLJ4bF7O8Ia5UxZBcqh me@laptop"
BACKENDS = accounts(BackendFacts(name="vultr"), BackendFacts(name="aws", volumes=True, gateways=True))


class Recorder(Rig):
    """Keeps the first answer of each operation."""

    recorded: dict[str, Any]

    def call(self, path: str, body: Any = None, *, method: str = "POST", **more: Any) -> Response:
        reply = super().call(path, body, method=method, **more)
        found = dispatch.match(path)
        assert found is not None
        handler = found.routes[method].handler
        assert isinstance(handler, ByName)
        if reply.status == 200 and handler.name not in self.recorded:
            example = {} if body is None else {"body": presentable(body)}
            self.recorded[handler.name] = {**example, "answer": presentable(orjson.loads(reply.body))}
        return reply

    def get(self, path: str) -> Any:
        reply = self.call(f"/api/project/main/{path}", method="GET")
        assert reply.status == 200, reply.body
        return reply.json


def recorded(folder: Path) -> dict[str, Any]:
    usage = StorageUsage((Part("database", 4096, 1),), 10**9)
    rig = Recorder.at(folder, catalog=Books(OFFERS), backends=BACKENDS, measure=lambda: usage)
    rig.recorded = {}
    try:
        for play in (people, fleets, runs, storage, doors, sharing, history):
            play(rig)
    finally:
        rig.world.plane.store.close()
    return dict(sorted(rig.recorded.items()))


def people(rig: Recorder) -> None:
    rig.ok("/api/users/create", {"username": "ann", "global_role": "user", "email": "ann@example.com"})
    rig.ok("/api/users/update", {"username": "ann", "global_role": "user", "email": "ann@example.org"})
    rig.ok("/api/users/get_my_user")
    rig.ok("/api/users/get_user", {"username": "ann"})
    rig.ok("/api/users/list", {})
    rig.ok("/api/users/public_keys/add", {"key": KEY, "name": "laptop"})
    rig.ok("/api/users/public_keys/list")
    rig.ok("/api/users/access_tokens/create", {"name": "ci", "verbs": ["run"], "projects": ["main"]})
    rig.ok("/api/users/access_tokens/list")
    code = rig.ok("/api/users/sign_in_codes/create")["code"]
    rig.ok("/api/auth/sign_in_codes/exchange", {"code": code})
    rig.ok("/api/projects/create", {"project_name": "research"})
    rig.ok("/api/projects/main/add_members", {"members": [{"username": "ann", "project_role": "user"}]})
    rig.ok("/api/projects/main/set_quota", {"gpus": 8, "money": 100})
    rig.ok("/api/projects/main/get_quota")
    rig.ok("/api/projects/main/get")
    rig.ok("/api/projects/main/update", {"is_public": False})
    rig.ok("/api/projects/list", {})
    rig.ok("P/secrets/create_or_update", {"name": "hf_token", "value": "hf_example"})
    rig.ok("P/secrets/get", {"name": "hf_token"})
    rig.ok("P/secrets/list", {})
    store(rig.world.plane, rig.project, read_backend(config(regions=["eu-west-1"])), None)
    rig.ok("P/backends/list")
    rig.ok("/api/backends/list_types")


def fleets(rig: Recorder) -> None:
    spec = fleet(resources={"gpu": {"name": ["A100"], "count": {"min": 0}}})
    rig.ok("P/fleets/get_plan", {"spec": spec})
    made = rig.ok("P/fleets/apply", {"plan": {"spec": spec}, "force": False})
    machine = add_instance(rig, made)
    rig.ok("P/fleets/get", {"name": "pool"})
    rig.ok("P/fleets/list", {})
    rig.ok("/api/fleets/list", {"limit": 10})
    rig.ok("/api/instances/list", {"limit": 10})
    rig.ok("P/instances/get", {"id": machine.id})
    rig.ok("P/instances/get_instance_health_checks", {"fleet_name": "pool", "instance_num": 0})
    rig.ok("P/fleets/apply", {"plan": {"spec": BY_THEMSELVES}, "force": False})
    rig.ok("P/fleets/create_join", {"name": "lab"})
    rig.ok("P/fleets/list_joins", {"name": "lab"})


def runs(rig: Recorder) -> None:
    spec = task("train", commands=["python train.py"], resources={"gpu": "A100:1"})
    rig.ok("P/runs/get_plan", {"run_spec": spec, "max_offers": 1})
    rig.ok("P/gpus/list", {"run_spec": spec, "group_by": ["backend"]})
    made = rig.ok("P/runs/apply", {"plan": {"run_spec": spec}, "force": False})
    plane, now = rig.world.plane, rig.world.clock.now()
    job = placed(job_of(rig, made["id"]), now)
    rig.save(job)
    points = [MetricPoint(task=job.id, at=now + SECOND, cpu_usage_micro=1000, memory_usage_bytes=2**30)]
    plane.store.commit(metric_puts(points, {job.id: job}, now, 7))
    rig.world.clock.pass_(60)
    rig.ok("P/runs/get", {"run_name": "train"})
    rig.ok("/api/runs/list", {"project_name": "main", "limit": 10})
    rig.get("metrics/job/train")
    rig.ok("P/logs/poll", {"run_name": "train", "job_submission_id": job.id})
    rig.ok("P/automations/add", {"spec": task("nightly", commands=["python evaluate.py"])})
    rig.ok("P/automations/list")
    rig.ok("P/services/create_token", {"expires_in": 3600})
    rig.ok("P/runs/apply", {"plan": {"run_spec": service("chat")}, "force": False})
    rig.ok("P/services/get", {"run_name": "chat"})
    rig.ok("P/runs/stop", {"runs_names": ["train"]})
    rig.ok("P/repos/init", {"repo_id": "mine", "repo_info": {"repo_type": "virtual"}})
    rig.ok("P/repos/get", {"repo_id": "mine"})
    rig.ok("P/repos/list", {})


def storage(rig: Recorder) -> None:
    made = rig.ok("P/volumes/create", volume("data"))
    activate(rig, made, attachments=(attachment(name="/dev/sdf"),), size_gib=100)
    rig.ok("P/volumes/get", {"name": "data"})
    rig.ok("P/volumes/list", {})
    rig.ok("/api/volumes/list", {"limit": 10})


def doors(rig: Recorder) -> None:
    written = {"type": "gateway", "name": "door", "backend": "aws", "region": "eu-west-1", "domain": "example.com"}
    rig.ok("P/gateways/get_plan", {"spec": {"configuration": written}})
    rig.ok("P/gateways/apply", {"plan": {"spec": {"configuration": written}}})
    rig.ok("P/gateways/get", {"name": "door"})
    rig.ok("P/gateways/list")


def sharing(rig: Recorder) -> None:
    rig.another_project("other")
    body = {"name": "hosts", "importer_projects": ["other"], "exported_fleets": ["lab"]}
    rig.ok("P/exports/create", body)
    rig.ok("P/exports/list")
    rig.ok("/api/project/other/imports/list")


def history(rig: Recorder) -> None:
    rig.ok("/api/events/list", {"limit": 2})
    rig.ok("P/events/changes", {"prev_recorded_at": "2020-01-01T00:00:00+00:00", "limit": 2})
    rig.ok("/api/server/get_info", token=ADMIN)
    rig.ok("/api/server/get_usage")
    rig.ok("/api/server/get_cost")
    rig.ok("/api/server/get_slo")
    found = Met(kind="machine", id="i-0a1b2c", says="AWS has the instance i-0a1b2c, which no record names.")
    now = rig.world.at
    rig.world.save(Restoration(as_of=now - HOUR, at=now, looks_until=now + HOUR, met=(found,)))
    rig.ok("/api/server/get_restoration")
    rig.ok("/api/server/go_on")
