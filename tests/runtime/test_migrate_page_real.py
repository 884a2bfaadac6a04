"""The commands of docs/operate/migrate.md, on an emulated AWS: a folder with a machine, a run and its log moves into a
stage, and back."""

from __future__ import annotations

import io
import json
import re
import shlex
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program.build import build
from chalicelib.domain.instants import HOUR
from chalicelib.runtime.lambda_ import Boto, LambdaRoot, parameters
from chalicelib.runtime.migration.signpost import fenced
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import stage_settings
from chalicelib.store.blobs import S3Blobs
from chalicelib.store.dynamo import create_table
from chalicelib.store.fences import fence_of
from chalicelib.usecases.agents.downloads import publish
from chalicelib.usecases.operator.first_start import first_start
from cli.screen.terminal import Terminal
from tests.emulators.ministack import Emulator
from tests.harness.server import ROOT
from tests.world.cli import Dstack
from tests.world.embedded import EmbeddedSite

PAGE = (ROOT / "docs" / "operate" / "migrate.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```shell\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
TASK = {"type": "task", "name": "one", "commands": ["echo begun", "sleep 600"]}
SETTINGS = {
    "table": "dstack-prod",
    "bucket": "dstack-prod",
    "wake_function": "dstack-prod-reconcile",
    "api_url": "https://api.example.com",
    "agent_url": "https://agents.example.com",
}


@pytest.fixture
def environment(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    given = {"DSTACK_AWS_ENDPOINT": emulator.url, "DSTACK_SERVER_DIR": str(tmp_path / "server")}
    given |= {"DSTACK_SERVER_FAKE_CLOUD": "on", "DSTACK_FAKE_CLOUD": str(tmp_path / "cloud")}
    for name, value in (emulator.environment | given).items():
        monkeypatch.setenv(name, value)
    return emulator


def submitted(site: EmbeddedSite) -> tuple[str, str]:
    """The project and the job of a run that writes."""
    small = {"resources": {"cpu": "1..", "memory": "1GB..", "disk": "10GB.."}}
    fleet = {"spec": {"configuration": {"type": "fleet", "name": "pool", "nodes": "0..1"}}}
    site.call("/api/project/main/fleets/apply", {"plan": fleet, "force": False})
    spec = {"configuration": TASK | small}
    plan = site.call("/api/project/main/runs/get_plan", {"run_spec": spec})
    body = {"plan": {"run_spec": plan["run_spec"], "current_resource": None}, "force": False}
    run = site.call("/api/project/main/runs/apply", body)
    job = run["jobs"][0]["job_submissions"][-1]["id"]
    project = str(site.call("/api/projects/main/get", {})["project_id"])
    assert site.time.run(site.time.at + HOUR, lambda: output(site.root, project, job) == b"begun\n")
    return project, str(job)


def output(root: Root, project: str, job: str) -> bytes:
    return b"".join(data for _, data in root.ports.logs.read(project, job).records)


def deployed(emulator: Emulator) -> LambdaRoot:
    """What `make deploy STAGE=prod` leaves, as far as a migration needs it."""
    create_table(emulator.client("dynamodb"), "dstack-prod")
    emulator.client("s3").create_bucket(Bucket="dstack-prod")
    emulator.client("ssm").put_parameter(Name="/dstack-prod/settings", Value=json.dumps(SETTINGS), Type="String")
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("app.py", "def handler(event, context): return {}\n")
    emulator.client("lambda").create_function(
        FunctionName="dstack-prod-reconcile",
        Runtime="python3.12",
        Role="arn:aws:iam::000000000000:role/any",
        Handler="app.handler",
        Code={"ZipFile": code.getvalue()},
        Timeout=1,
        Environment={"Variables": {"DSTACK_KEYS": "/dstack-prod"}},
    )
    publish(S3Blobs("dstack-prod", lambda: emulator.client("s3")), build())
    root = stage(emulator)
    first_start(root.plane)
    return root


def stage(emulator: Emulator) -> LambdaRoot:
    clients = Boto(emulator.url)
    return LambdaRoot(stage_settings("prod", parameters(clients)), clients=clients)


@pytest.mark.slow
def test_the_pages_commands_move_a_control_plane_to_aws_and_back(environment: Emulator, tmp_path: Path) -> None:
    folder, bare = tmp_path / "server", Dstack(Terminal(env={}, home=tmp_path, cwd=tmp_path, watched=True))
    with closing(EmbeddedSite("moves", folder)) as site:
        project, job = submitted(site)
        before = {record.key: record for record in site.root.plane.store.scan(limit=100_000)}

    def run(line: str) -> Any:
        assert line in COMMANDS
        ended = bare(*shlex.split(line)[1:], answers="y\n")
        assert ended.code == 0, ended.out + ended.err
        return ended

    run("dstack server migrate prod --keys")
    root = deployed(environment)
    assert "can move" in run("dstack server migrate prod --check").out
    run("dstack server migrate prod -y")
    moved = fenced(folder)
    assert moved is not None and moved.agents_url == "https://agents.example.com"
    assert root.fence() is None and output(root, project, job) == b"begun\n"
    there = {record.key: record for record in root.plane.store.scan(limit=100_000)}
    lost = {key for key in before if key not in there and key.pk != "subscriptions"}
    assert not lost
    run_again = bare("server", "migrate", "prod", "-y")
    assert run_again.code == 0 and "already" in run_again.out
    assert bare("server", "migrate", "prod", "--abort").code == 1
    root.plane.logs.append(project, job, len(b"begun\n"), [(1, b"and more\n")])

    run("dstack server migrate prod --back --keys")
    run("dstack server migrate prod --back --public-url https://dstack.example.com:3000 -y")
    gone = fence_of(stage(environment).ports.store)
    assert gone is not None and not gone.decides and gone.agents_url == "https://dstack.example.com:3000"
    assert fenced(folder) is None
    with closing(EmbeddedSite("moves-again", folder)) as site:
        assert output(site.root, project, job) == b"begun\nand more\n"
        assert site.call("/api/project/main/runs/get", {"run_name": "one"})["status"] == "running"
