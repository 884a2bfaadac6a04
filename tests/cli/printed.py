"""Real documents of every `--json`: the command line over the real API, with a run and a fleet in several states."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from chalicelib.api import dispatch
from chalicelib.configuration.server import read_backend
from chalicelib.domain import keys
from chalicelib.domain.certificates import Certificate, CertificatePair, certificate_id
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import JobStatus, PullProgress
from chalicelib.domain.runs import RunStatus
from chalicelib.domain.services import SERVER, Answers, Bucket, Traffic
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.operator.backends import store
from chalicelib.usecases.runs.metrics import metric_puts
from cli.connection.config import ProjectEntry, config_path, save_projects
from tests.api.rig import ADMIN, Rig, fleet, submit
from tests.api.test_fleets import add_instance, create
from tests.api.test_joins import BY_THEMSELVES, machine_joins
from tests.api.test_runs import finish, job_of, placed
from tests.api.test_services import service
from tests.api.test_volumes import activate, volume
from tests.cli.conftest import Dstack
from tests.cli.plane import Plane, RecordedRequest
from tests.cli.presets import samples
from tests.cli.presets.samples import DONE, INTERRUPTED
from tests.world import gateways
from tests.world.keyed import config
from tests.world.volumes import attachment

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAJfXpGgxCBxoFRSgXNqxQo84nLJ4bF7O8Ia5UxZBcqh me@laptop"
SMALL = "resources: {cpu: 1.., memory: 1GB.., disk: 1GB..}\n"


class RealPlane(Plane):
    """The API itself behind the same server."""

    rig: Rig

    def answer(self, recorded: RecordedRequest) -> tuple[int, Any]:
        path, _, query = recorded.path.partition("?")
        headers = {name.lower(): value for name, value in recorded.headers.items()}
        method = "GET" if query else "POST"
        request = dispatch.Request(method, path, dict(parse_qsl(query)), headers, recorded.raw)
        found = dispatch.answer(self.rig.world.plane, request)
        return found.status, found.body


def fill(rig: Rig, dstack: Dstack) -> None:
    """Runs that wait, pull, run and have ended; a fleet with machines; a secret; samples of what a job uses."""
    made = create(rig, fleet(resources={"gpu": {"name": ["A100"], "count": {"min": 0}}}))
    add_instance(rig, made)
    task_file = dstack.terminal.cwd / "task.yml"
    task_file.write_text("type: task\ncommands: [ls]\nenv: [A=1]\nmax_duration: 1h\nretry: true\n" + SMALL)
    for name in ("waiting", "pulling", "done"):
        assert dstack("apply", "-f", "task.yml", "-n", name, "-y", "-d", "--gpu", "A100:40GB..:0..1").code == 0
    ids = {name: rig.ok("P/runs/get", {"run_name": name})["id"] for name in ("waiting", "pulling", "done")}
    now = rig.world.clock.now()
    pulling = placed(job_of(rig, ids["pulling"]), now).with_(
        status=JobStatus.pulling, pull=PullProgress(downloaded_bytes=2, extracted_bytes=1, total_bytes=5)
    )
    rig.save(pulling)
    rig.save(placed(job_of(rig, ids["done"]), now))
    points = [
        MetricPoint(task=pulling.id, at=now + at * SECOND, cpu_usage_micro=at * 1000, memory_usage_bytes=5)
        for at in (1, 11)
    ]
    rig.world.plane.store.commit(metric_puts(points, {pulling.id: pulling}, now, 7))
    rig.world.clock.pass_(MINUTE / 1e6)
    finish(rig, ids["done"], RunStatus.failed)
    rig.ok("P/secrets/create_or_update", {"name": "tok", "value": "v"})
    served(rig)
    task_file.write_text("type: task\nname: nightly\ncommands: [ls]\n" + SMALL)
    assert dstack("automation", "add", "-f", "task.yml").code == 0
    task_file.write_text("type: task\ncommands: [ls]\nenv: [A=1]\nmax_duration: 1h\nretry: true\n" + SMALL)

    rig.ok("/api/users/public_keys/add", {"key": KEY})
    store(rig.world.plane, rig.project, read_backend(config(regions=["eu-west-1"], tags={"a": "b"})), None)
    create(rig, BY_THEMSELVES)
    rig.ok("P/fleets/create_join", {"name": "lab"})
    rig.another_project("other")
    rig.ok("/api/project/other/fleets/apply", {"plan": {"spec": BY_THEMSELVES}, "force": False})
    for exporter, importer in (("main", "other"), ("other", "main")):
        body = {"name": "hosts", "importer_projects": [importer], "exported_fleets": ["lab"]}
        rig.ok(f"/api/project/{exporter}/exports/create", body)
    volumes = [volume("data", auto_cleanup_duration="1h", tags={"a": "b"}), volume("old", size="", volume_id="vol-1")]
    for made in [rig.ok("P/volumes/create", each) for each in volumes]:
        activate(rig, made, attachments=(attachment(name="/dev/sdf"),), size_gib=100, message="it is well")
    rig.ok("P/volumes/create", volume("new"))
    door = rig.ok("P/gateways/create", {"configuration": {"type": "gateway", "name": "door", "fleet": "lab"}})
    of = rig.world.plane.read.find(Gateway, keys.gateway(door["id"]))
    assert of is not None
    host = gateways.host()
    rig.save(gateways.carrying(of, host, message="it is well"))
    rig.save(certificate(of, message="no address for chat.example.com", failures=1))
    cloud = {"type": "gateway", "name": "cloud", "backend": "aws", "region": "r", "domain": "example.com"}
    rig.ok("P/gateways/create", {"configuration": cloud})
    machine_joins(rig, rig.ok("P/fleets/create_join", {"name": "lab"}))


def served(rig: Rig) -> None:
    """A service with answers at its door."""
    at = rig.world.clock.now()
    made = submit(rig, service(auth=False))
    buckets, answers = (Bucket(at=at, requests=3),), (Answers(at=at, first_byte=(3,), whole=(0, 3)),)
    rig.save(Traffic(run_id=made["id"], door=SERVER, at=at, buckets=buckets, answers=answers))


FAILING = ("backend check --json", "apply -f wrong.yml -y --json")  # the first: the simulated cloud stands in for it


def certificate(of: Gateway, **fields: Any) -> Certificate:
    at, host = of.created_at, "chat.example.com"
    of_it = {"project_id": of.project_id, "gateway_id": of.id, "gateway_name": of.name, "name": host}
    times = {"used_at": at, "created_at": at, "last_processed_at": at, "due_at": at + MINUTE}
    pair = CertificatePair(chain="", key="", since=at, until=at + MINUTE)
    return Certificate(id=certificate_id(of.id, host), pair=pair, **of_it, **times, **fields)


def documents(dstack: Dstack) -> dict[str, list[Any]]:
    """What each command prints, by its name."""
    samples.fill(dstack.terminal.home)
    (dstack.terminal.cwd / "fleet.yml").write_text("type: fleet\nname: other\nnodes: 0..1\n")
    (dstack.terminal.cwd / "wrong.yml").write_text("type: fleet\nnmae: other\n")
    lines = {
        "ps": ["ps --json", "ps -a --json", "ps --format json"],
        "run get": [f"run get {name} --json" for name in ("waiting", "pulling", "done")],
        "export list": ["export list --json"],
        "import list": ["import list --json"],
        "fleet get": ["fleet get pool --json"],
        "fleet list": ["fleet list --json"],
        "fleet joins": ["fleet joins lab --json"],
        "offer": [
            "offer --json",
            "offer --format json --spot-auto --max-price 3 --gpu A100,H100:40GB..80GB:1..2 --cpu x86:2..4",
        ],
        "offer --group-by": ["offer --group-by gpu --json", "offer --group-by gpu,backend,region,count --json"],
        "automation list": ["automation list --json"],
        "backend check": ["backend check --json"],
        "backend list": ["backend list --json"],
        "event list": ["event --json", "event list --json --within-run done"],
        "gateway get": [f"gateway get {name} --json" for name in ("door", "cloud")],
        "gateway list": ["gateway list --json"],
        "preset get": [f"preset get {each} --json" for each in (DONE, INTERRUPTED)],
        "preset list": ["preset --json", "preset list -a --json"],
        "metrics": ["metrics pulling --json"],
        "project list": ["project list --json", "project list -v --json"],
        "project quota": [
            f"project quota{whose} --json"
            for whose in (
                "",
                *(f"{who} --gpus 9 --jobs 9 --money 2.5" for who in ("", " --each-user", " --user admin")),
            )
        ],
        "project members": ["project members --json"],
        "token create": ["token create ci --verb run --for main --json", "token create all --json"],
        "token list": ["token list --json"],
        "scim token create": ["scim token create okta --json"],
        "scim token list": ["scim token list --json"],
        "user list": ["user list --json"],
        "user create": ["user create ann --email ann@example.com --json"],
        "user keys": ["user keys --json"],
        "secret list": ["secret list --json"],
        "secret get": ["secret get tok --json"],
        "server info": ["server info --json"],
        "server info --cost": ["server info --cost --json"],
        "server slo": ["server slo --json"],
        "service get": ["service get chat --json"],
        "volume get": [f"volume get {name} --json" for name in ("data", "old", "new")],
        "volume list": ["volume list --json"],
        "error": ["apply -f wrong.yml -y --json"],
        "apply": ["apply -f task.yml -n fresh -y --json", "apply -f fleet.yml -y --json"],
    }
    return {name: [_printed(dstack, line) for line in each] for name, each in lines.items()}


def _printed(dstack: Dstack, line: str) -> Any:
    ended = dstack(*line.split())
    assert ended.code == (line in FAILING), (line, ended)
    return json.loads(ended.out)


def printed(dstack: Dstack, plane: RealPlane) -> dict[str, list[Any]]:
    """What every command prints of a plane that has something of everything."""
    entry = ProjectEntry("main", plane.url, ADMIN, True)
    save_projects(config_path(dstack.terminal.home), [entry])
    fill(plane.rig, dstack)
    return documents(dstack)
