"""Folders of all releases, opened by this one; agents of the releases beside it; and the way back."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api import dispatch
from chalicelib.domain import keys
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.engine.job_secrets import context_of
from chalicelib.engine.record_upgrades import UpgradeProgress
from chalicelib.errors import DataTooNew
from chalicelib.runtime.backup import DATABASE, back_up
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.restore import restore
from chalicelib.runtime.upgrade import changes_of, check_records, prepare
from chalicelib.store import nouns
from chalicelib.store.backups import Backups, KeySource, opened
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.port import Put, Record
from chalicelib.store.sqlite import SCHEMA, SqliteStore
from chalicelib.usecases.agents.calls import sync
from cli.main import written_version
from tests.fixtures.releases.make import HERE, SECRET, TOKEN, fill, root_of
from tests.usecases.cluster import FACTS, wants
from tests.world.time import NOW, Clock

RELEASES = sorted(path.parent for path in HERE.glob("*/server.zip"))
KEY = KeySource(secret=b"k" * 32)


@pytest.fixture(params=RELEASES, ids=lambda path: str(path.name))
def release(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A release's data folder, and what its agent says next."""
    found: Path = request.param
    with zipfile.ZipFile(found / "server.zip") as archive:
        archive.extractall(tmp_path / "server")
    return tmp_path / "server", json.loads((found / "agent.json").read_text())


@pytest.fixture
def root(release: tuple[Path, dict[str, Any]]) -> Iterator[EmbeddedRoot]:
    made = root_of(release[0], Clock())
    yield made
    made.close()


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    return opened(FileBlobs(tmp_path / "backups"), KEY, create=True)


def said(root: EmbeddedRoot, call: dict[str, Any], **more: Any) -> Any:
    message = {**call["message"], **more}
    return sync(root.plane, message["instance"], call["credential"], message)


def runs(root: EmbeddedRoot) -> dict[str, Run]:
    found = (record for record in root.ports.store.scan() if record.key.pk.startswith("run/"))
    return {run.name: run for run in (nouns.read(Run, r) for r in found if r.key.sk == keys.STATUS)}


def log_of(root: EmbeddedRoot, run: Run) -> bytes:
    (job,) = root.plane.read.jobs(run.id)
    return b"".join(data for _, data in root.ports.logs.read(job.project_id, job.id).records)


def test_this_release_has_its_fixture() -> None:
    assert written_version() in {path.name for path in RELEASES}, "run: python -m tests.fixtures.releases.make"


@pytest.mark.slow
def test_the_script_makes_such_a_fixture(tmp_path: Path) -> None:
    clock = Clock()
    with closing(root_of(tmp_path, clock)) as root:
        call = fill(root, clock)
        assert set(runs(root)) == {"over", "live"}
        said(root, call)
        assert runs(root)["live"].finished


def test_a_folder_of_each_release_is_read_whole_and_its_runs_go_on(
    root: EmbeddedRoot, release: tuple[Path, dict[str, Any]]
) -> None:
    before = runs(root)
    assert before["over"].status is RunStatus.done and log_of(root, before["over"]) == b"it is over\n"
    assert not before["live"].finished
    answer = said(root, release[1])
    assert "remove" in wants(answer).values()
    live = runs(root)["live"]
    assert live.status is RunStatus.done and log_of(root, live) == b"begun\nended\n"


def test_tokens_secrets_and_history_of_each_release_stay(root: EmbeddedRoot) -> None:
    secrets = [record for record in root.ports.store.scan() if record.key.sk.startswith("secret/")]
    (sealed,) = [json.loads(record.body) for record in secrets]
    assert root.ports.seal.open(sealed["sealed"], context=context_of(sealed["project_id"], "TOKEN")) == SECRET
    for path in ("/api/users/list", "/api/projects/list", "/api/runs/list", "/api/fleets/list"):
        headers = {"authorization": f"Bearer {TOKEN}"}
        reply = dispatch.answer(root.plane, dispatch.Request("POST", path, headers=headers, body=b"{}"))
        assert reply.status == 200, (path, reply)
    events = [record for record in root.ports.store.scan() if record.key.pk.startswith(keys.EVENTS)]
    assert events and all(json.loads(record.body) for record in events)


@pytest.mark.slow
def test_an_upgrade_is_rehearsed_on_a_backup_and_says_what_changes(
    release: tuple[Path, dict[str, Any]], backups: Backups
) -> None:
    done = prepare(release[0], backups, NOW)
    assert done.rehearsal.problems == [] and done.rehearsal.counts["units"] > 0
    assert done.changes == [
        f"records are brought to form {UpgradeProgress.form}, a few at a time while the server runs"
    ]
    with closing(root_of(release[0], Clock())) as root:
        root.erase()
    assert changes_of(release[0]) == []


# --- agents of the releases beside it ---------------------------------------------------------------------------------


def test_an_agent_of_the_next_release_may_say_more(root: EmbeddedRoot, release: tuple[Path, dict[str, Any]]) -> None:
    task = {**release[1]["message"]["tasks"][0], "added_later": {"x": 1}}
    said(root, release[1], tasks=[task], added_later=[1, 2], facts={**FACTS, "added_later": True})
    assert runs(root)["live"].status is RunStatus.done


# --- the way back -----------------------------------------------------------------------------------------------------


def test_a_folder_of_a_newer_store_is_refused_with_the_way_back(
    release: tuple[Path, dict[str, Any]], backups: Backups, tmp_path: Path
) -> None:
    folder = release[0]
    back_up(folder, backups, lambda: NOW)
    with closing(sqlite3.connect(folder / DATABASE)) as file:
        file.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    for attempt in (
        lambda: SqliteStore(folder / DATABASE),
        lambda: changes_of(folder),
        lambda: back_up(folder, backups, lambda: NOW + 1),
    ):
        with pytest.raises(DataTooNew, match="restore the backup of before the upgrade"):
            attempt()
    restore(backups, tmp_path / "back", NOW + 2)
    with closing(root_of(tmp_path / "back", Clock())) as root:
        assert set(runs(root)) == {"over", "live"}


def test_records_of_a_newer_form_are_refused_with_the_way_back(
    root: EmbeddedRoot, release: tuple[Path, dict[str, Any]]
) -> None:
    check_records(root.ports.store)
    newer = Record(keys.renewal(UpgradeProgress.form + 1), 1, b'{"done":true}')
    root.ports.store.commit([Put(newer, expect=0)])
    with pytest.raises(DataTooNew, match="restore the backup of before the upgrade"):
        check_records(root.ports.store)
    with pytest.raises(DataTooNew, match="records here are of a newer version"):
        changes_of(release[0])
