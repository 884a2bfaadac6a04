"""A stage of this release at a table with the records of each release before: its functions read them, and take what an
agent of that release says."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.registry import CLOUDS
from chalicelib.domain import keys
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.engine.job_secrets import context_of
from chalicelib.engine.record_upgrades import UpgradeProgress
from chalicelib.runtime.chalice_app import ControlPlane
from chalicelib.runtime.lambda_ import LambdaRoot
from chalicelib.runtime.settings import LambdaSettings
from chalicelib.store import nouns
from chalicelib.store.dynamo import create_table
from chalicelib.store.record_form import FORM
from functions import agent_sync, erase_unused, reap_idle, reconcile
from infra.restore import replace
from tests.emulators.ministack import Emulator
from tests.fixtures.releases.make import HERE, SECRET, TOKEN, root_of
from tests.functions.test_handlers import RecordedRequests
from tests.harness.lambda_host import api_event, scheduled_event, url_event
from tests.world.time import Clock

RELEASES = sorted(path.parent for path in HERE.glob("*/server.zip"))


@dataclass
class OldStage:
    settings: LambdaSettings
    said: dict[str, Any]  # what its agent says next
    emulator: Emulator
    clock: Clock

    def root(self) -> LambdaRoot:
        """As a new process has it."""
        requests = RecordedRequests()
        clients = {name: self.emulator.client(name) for name in ("s3", "dynamodb")}
        return LambdaRoot(
            self.settings, clock=self.clock, clients=lambda service: clients.get(service) or requests(service)
        )

    def sync(self, root: LambdaRoot) -> Any:
        headers = {"Authorization": f"Bearer {self.said['credential']}", "Content-Type": "application/json"}
        body = json.dumps(self.said["message"]).encode()
        return agent_sync.handler(url_event("POST", "/agent/sync", "", headers, body), None, root)


@pytest.fixture(params=RELEASES, ids=lambda path: str(path.name))
def stage(request: pytest.FixtureRequest, emulator: Emulator, tmp_path: Path) -> Iterator[OldStage]:
    found: Path = request.param
    name = f"release-{found.name}"
    with zipfile.ZipFile(found / "server.zip") as archive:
        archive.extractall(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in emulator.environment.items():
            patch.setenv(variable, value)
        create_table(emulator.client("dynamodb"), name)
        emulator.client("s3").create_bucket(Bucket=name)
        clock = Clock()
        with closing(root_of(tmp_path, clock)) as folder:
            settings = LambdaSettings(
                table=name,
                bucket=name,
                wake_function="reconcile",
                provider_functions={CLOUDS: "provider_clouds"},
                api_url="https://plane.example",
                agent_url="https://plane.example",
                install_key=folder.ports.install_key,
                master_key=bytes.fromhex((tmp_path / "master.key").read_text()),
                endpoint=emulator.url,
            )
            made = OldStage(settings, json.loads((found / "agent.json").read_text()), emulator, clock)
            root = made.root()
            replace(root.ports.store, folder.ports.store)
            for run in runs(root).values():
                (job,) = folder.plane.read.jobs(run.id)
                lines = folder.ports.logs.read(job.project_id, job.id).records
                root.ports.logs.append(job.project_id, job.id, 0, lines)
        yield made
        emulator.client("dynamodb").delete_table(TableName=name)


def runs(root: LambdaRoot) -> dict[str, Run]:
    found = (record for record in root.ports.store.scan() if record.key.pk.startswith("run/"))
    return {run.name: run for run in (nouns.read(Run, r) for r in found if r.key.sk == keys.STATUS)}


def ask(root: LambdaRoot, path: str) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    answer = ControlPlane(lambda: root.plane)(api_event("POST", path, "", headers, b"{}", binary=()), None)
    return int(answer["statusCode"])


@pytest.mark.slow
def test_functions_read_the_records_of_each_release_and_its_runs_go_on(stage: OldStage) -> None:
    root = stage.root()
    assert {run.name: run.status for run in runs(root).values()}["over"] is RunStatus.done
    assert stage.sync(root)["statusCode"] == 200
    for handler in (reconcile.handler, reap_idle.handler):
        done = handler(scheduled_event("any"), None, root)
        assert done["failed"] == {}
    live = runs(root)["live"]
    (job,) = root.plane.read.jobs(live.id)
    assert live.status is RunStatus.done
    assert b"".join(data for _, data in root.ports.logs.read(job.project_id, job.id).records) == b"begun\nended\n"
    for path in ("/api/users/list", "/api/projects/list", "/api/runs/list", "/api/fleets/list"):
        assert ask(root, path) == 200, path
    (sealed,) = [json.loads(record.body) for record in root.ports.store.scan() if record.key.sk.startswith("secret/")]
    assert root.ports.seal.open(sealed["sealed"], context=context_of(sealed["project_id"], "TOKEN")) == SECRET
    erase_unused.handler(scheduled_event("any"), None, root)
    upgraded = nouns.find(root.ports.store, UpgradeProgress, keys.renewal(FORM))
    assert upgraded is not None and upgraded.done
