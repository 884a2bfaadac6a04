"""What every command that shows something prints, on screens of three widths without colour, and piped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cli.connection.config import ProjectEntry, config_path, save_projects
from cli.reference import leaves
from tests.cli.applying.test_flags import ANSWERS, BACKEND
from tests.cli.conftest import Dstack
from tests.cli.people import SCIM_TOKENS
from tests.cli.plane import Plane, fleet, gateway, offer, run, volume
from tests.cli.presets import samples as presets
from tests.cli.test_tables import GROUPS, H100, many_fleets, many_runs, metrics, run_plan, taken
from tests.harness import golden

FOLDER = Path(__file__).parent / "golden" / "faces"
LONG = "an error that says in some detail what went wrong, and " * 6 + "ends"
ESCAPE = re.compile(r"\x1b\[\d*m")
FACES = {  # command line: what it is called
    "apply -f task.yml": "apply-task",
    "apply -f changed.yml": "apply-changed",
    "apply -f fleet.yml": "apply-fleet",
    "automation": "automation",
    "backend": "backend",
    "event": "event",
    "export": "export",
    "export create lab --fleet gpus --importer research": "export-create",
    "export update lab --add-fleet more": "export-update",
    "fleet": "fleet",
    "fleet list -v": "fleet-list-verbose",
    "fleet get gpu-cluster": "fleet-get",
    "fleet joins gpu-cluster": "fleet-joins",
    "import": "import",
    "gateway": "gateway",
    "gateway list -v": "gateway-list-verbose",
    "gateway get door": "gateway-get",
    "metrics train": "metrics",
    "offer --gpu H100": "offer",
    "offer --group-by gpu,backend": "offer-grouped",
    "preset -a": "preset",
    "preset list -a -v": "preset-list-verbose",
    f"preset get {presets.DONE}": "preset-get",
    "project": "project",
    "project list -v": "project-list-verbose",
    "project quota": "project-quota",
    "project members": "project-members",
    "ps -a": "ps",
    "ps -v": "ps-verbose",
    "run get train": "run-get",
    "secret": "secret",
    "secret get deploy_key": "secret-get",
    "server info": "server-info",
    "server info --cost": "server-info-cost",
    "server slo": "server-slo",
    "service get chat": "service-get",
    "scim token list": "scim-token-list",
    "token": "token",
    "user": "user",
    "user keys": "user-keys",
    "volume": "volume",
    "volume list -v": "volume-list-verbose",
    "volume get data": "volume-get",
}
NO_TABLE = {  # lines, a log, a script
    "attach", "audit verify", "automation add", "automation delete", "backend add", "backend check", "backend delete",
    "completion", "console", "delete", "event follow", "export delete", "fleet delete", "fleet delete-instance",
    "fleet join-command", "fleet revoke-join", "import delete", "init", "login", "logs", "project add",
    "project add-member", "project create", "project delete", "project remove-member", "project set-default",
    "user add-key", "user create", "user delete", "user delete-key", "user token", "user update",
    "secret delete", "secret set", "server", "server backup", "server backups", "server restore", "server restored",
    "server upgrade", "server migrate",
    "server install", "server uninstall",
    "service token", "stop", "token create", "token revoke", "scim token create", "scim token revoke",
    "preset create", "preset delete", "preset export", "preset logs", "preset pull", "preset push", "preset resume",
    "preset stop",
    "volume delete", "gateway delete", "gateway update",
}  # fmt: skip


AGES = [taken("aws", 3.0), taken("gcp", 130.0, LONG)]

WANTED = "cpu=2.. memory=8GB.. disk=100GB.. gpu=H100:80GB..:8, spot or on-demand, $30 an hour at most"
ASKED = [
    {"backend": "runpod", "request": f"{WANTED}, in us-ks-2", "offers": 12, "seconds": 0.8, "error": None}
    | {"asked_at": "2026-11-21T04:00:00.25Z", "lacking": None},
    {"backend": "kubernetes", "request": WANTED, "offers": 0, "seconds": 0.05, "error": None}
    | {"asked_at": "2026-11-21T04:00:00Z", "lacking": "cluster: gpu-1 (0 of 8 H100 free); cpu-1 (no GPUs)"},
    {"backend": "vastai", "request": WANTED, "offers": 0, "seconds": None, "error": "no answer within 8 seconds"}
    | {"asked_at": "2026-11-21T04:00:00Z", "lacking": None},
]


def plan_of(body: dict[str, Any]) -> dict[str, Any]:
    plan = run_plan()
    name = body["run_spec"]["configuration"]["name"]
    current = None
    if name == "changed":
        spec = {"run_name": name, "configuration": {**body["run_spec"]["configuration"], "commands": ["before"]}}
        current = run(name) | {"run_spec": spec}
    return {
        **plan,
        "offers_as_of": AGES,
        "offers_asked": ASKED,
        "quota": [
            "project main uses 10 of 12 GPUs, $12.30 of $50 a day",
            "the run will wait for quota: 10 of 12 GPUs of project main are in use, and it needs 4",
        ],
        "run_spec": {**body["run_spec"], "run_name": name},
        "current_resource": current,
        "action": "update",
    } | {"effective_run_spec": {**plan["run_spec"], "configuration": body["run_spec"]["configuration"]}}


def joins() -> list[dict[str, Any]]:
    dates = {"created_at": "2026-11-21T04:00:00+00:00", "expires_at": "2026-11-21T05:40:00+00:00"}
    ids = [f"4fd1c2a9-6d0b-4f5e-9d53-3f6f1c1d2b7{number}" for number in range(3)]
    seen = [("unused", None), ("used", "gpu-cluster-3"), ("revoked", None)]
    return [
        {"id": ids[n], **dates, "created_by": "admin", "status": status, "instance_name": name}
        for n, (status, name) in enumerate(seen)
    ]


def volumes() -> list[dict[str, Any]]:
    held = {"instance": {"name": "gpu-cluster-0", "fleet_name": "gpu-cluster", "instance_num": 0, "instance_id": "i"}}
    configuration = {"type": "volume", "backend": "runpod", "region": "POD-1", "size": 0.5}
    failed = {"configuration": configuration, "provisioning_data": None, "status_message": LONG, "cost": 0.0}
    unpriced = {"size_gb": 0, "availability_zone": None, "price": None}
    external = {"configuration": {"backend": "lium"}, "provisioning_data": unpriced, "external": True, "cost": 0.0}
    return [
        volume(attachments=[held, held], cost=123.4),
        volume("broken", "failed", **failed, created_at="2026-11-21T03:00:00Z"),
        volume("shared", "submitted", **external, created_at="2026-11-20T03:00:00Z"),
    ]


def gateways() -> list[dict[str, Any]]:
    """One that runs twice, and one that waits for a host."""
    up = gateway()["replicas"][0]
    down = {**up, "replica_num": 1, "hostname": "192.168.1.11", "status": "provisioning", "status_message": "no nginx"}
    waits = {"hostname": None, "wildcard_domain": None, "default": False, "replicas": [], "status_message": LONG}
    return [
        gateway(replicas=[up, down], status_message="edge-1: no nginx"),
        gateway("new", "submitted", **waits, created_at="2026-11-21T03:00:00Z"),
    ]


UNREACHED = (
    "The authority didn't find the answer at http://api.example.com/.well-known/acme-challenge/. The next attempt is "
    "at 05:20:00."
)


def certificates() -> list[dict[str, Any]]:
    """One that is there, and one that can't be had."""
    there = {"host": "chat.example.com", "state": "issued", "until": "2027-02-01T04:00:00Z", "message": None}
    failed = {"host": "api.example.com", "state": "failed", "until": None, "message": UNREACHED}
    return [{**there, "next_attempt_at": None}, {**failed, "next_attempt_at": "2026-11-21T05:20:00Z"}]


def fleet_plan_of(body: dict[str, Any]) -> dict[str, Any]:
    offers = [offer("p5.48xlarge", 29.3218, resources=H100), offer()]
    found = {
        "project_name": "main",
        "user": "admin",
        "action": "create",
        "current_resource": None,
        "spec": body["spec"],
        "effective_spec": body["spec"],
    }
    return {**found, "offers": offers, "total_offers": 25, "max_offer_price": 30.0}


@pytest.fixture
def furnished(dstack: Dstack, plane: Plane) -> Dstack:
    (job, samples), _ = metrics()
    targets = [{"type": "run", "name": "finetune-llama-70b"}, {"type": "job", "name": "finetune-llama-70b-0-0"}]
    event = {
        "id": "1",
        "recorded_at": "2026-11-21T04:00:00Z",
        "actor_user": "admin",
        "message": LONG,
        "targets": targets,
    }
    broken = run("broken", "failed", error=LONG, latest={**run()["latest_job_submission"], "error": LONG})
    plane.answers |= {
        **ANSWERS,
        "/api/runs/list": [*many_runs(), broken],
        "/runs/get": {**run("train"), "jobs": [job]} | {"message": LONG},
        "/runs/get_plan": plan_of,
        "/fleets/list": many_fleets(),
        "/fleets/get": many_fleets()[0],
        "/fleets/list_joins": joins(),
        "/fleets/get_plan": fleet_plan_of,
        "/gpus/list": {"gpus": GROUPS, "offers_as_of": AGES[:1], "offers_asked": ASKED[:1]},
        "/metrics/job/train": {"metrics": samples},
        "/backends/list": [
            {**BACKEND, "offers_taken_at": "2026-11-21T04:00:00Z"},
            {**BACKEND, "name": "gcp", "source": "file", "config": {"regions": ["us-east1", "eu-west4"]}}
            | {"offers_error": LONG},
        ],
        "/secrets/list": [{"id": "1", "name": name, "value": None} for name in ("deploy_key", "tok")],
        "/secrets/get": {
            "id": "1",
            "name": "deploy_key",
            "value": "-----BEGIN KEY-----\n" + "A" * 150 + "\n-----END KEY-----",
        },
        "/gateways/list": gateways(),
        "/gateways/get": {**gateways()[0], "certificates": certificates()},
        "/volumes/list": volumes(),
        "/volumes/get": volumes()[0],
        "/api/events/list": [event],
        "/api/scim/tokens/list": SCIM_TOKENS,
        "/api/project/lab/fleets/list": [fleet()],
    }
    entries = [ProjectEntry("main", plane.url, "secret-token", True), ProjectEntry("a-longer-name", plane.url, "t2")]
    save_projects(config_path(dstack.terminal.home), entries)
    presets.fill(dstack.terminal.home)
    for name, text in {
        "task": "type: task\nname: train\ncommands: [ls]\n",
        "changed": "type: task\nname: changed\ncommands: [after]\n",
        "fleet": "type: fleet\nname: gpu-cluster\nnodes: 0..2\nresources: {gpu: 'H100:8'}\nspot_policy: auto\n",
    }.items():
        (dstack.terminal.cwd / f"{name}.yml").write_text(text)
    return dstack


def shown(dstack: Dstack, line: str, width: int | None, **env: str) -> str:
    """What a person sees, with what differs from machine to machine put out."""
    ended = dstack(*line.split(), answers="n\n", watched=width is not None, columns=width, env=env)
    assert ended.code == 0, (line, ended)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-21 hh:mm:ss", ended.out)
    return text.replace(str(dstack.terminal.cwd), "")


@pytest.mark.parametrize("line", FACES)
def test_reads_as_approved(furnished: Dstack, line: str) -> None:
    parts = []
    for width in (80, 120, 200, None):
        text = shown(furnished, line, width, NO_COLOR="1")
        assert "\x1b" not in text
        assert not width or max(map(len, text.splitlines())) <= width, text
        parts.append(f"=== {width or 'piped'}\n{text}")
    golden.check(FOLDER / f"{FACES[line]}.txt", "\n".join(parts))


@pytest.mark.parametrize("line", FACES)
def test_colour_changes_no_word(furnished: Dstack, line: str) -> None:
    assert ESCAPE.sub("", shown(furnished, line, 120)) == shown(furnished, line, 120, NO_COLOR="1")


@pytest.mark.parametrize("line", FACES)
def test_piped_is_plain_and_whole(furnished: Dstack, line: str) -> None:
    """No colour, no carriage return, and every word that a wide screen shows."""
    piped = shown(furnished, line, None)
    assert not set("\x1b\r\x08") & set(piped)
    assert piped.split() == shown(furnished, line, 10_000, NO_COLOR="1").split()


def test_every_command_has_a_face_or_prints_no_table() -> None:
    commands = {" ".join(path) for path, _ in leaves() if path[0] not in ("pool", "destroy")}
    faces = {name for name in commands if any(f"{line} ".startswith(f"{name} ") for line in FACES)}
    grouped = {
        f"{noun} list" for noun in ("automation", "backend", "event", "export", "import", "secret", "token", "user")
    }  # as the group prints it
    assert commands - faces - NO_TABLE - grouped == set()
