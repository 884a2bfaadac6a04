"""A restore drill: the last backup becomes a server in a temporary folder, which is asked, checked and deleted.

The server isn't started, so nothing it decides is committed or done, and no provider is called.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from chalicelib.api import dispatch
from chalicelib.domain.instants import Micros
from chalicelib.domain.keys import STATUS
from chalicelib.domain.tenants import Archive, Secret, User
from chalicelib.engine.job_secrets import context_of
from chalicelib.engine.kinds import KINDS
from chalicelib.errors import DstackError
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.restore import restore
from chalicelib.runtime.server_file import declared
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store import nouns
from chalicelib.store.backups import Backups, Moment
from chalicelib.store.port import Record
from chalicelib.usecases.operator.first_start import first_start

_TOKEN = "drill"  # noqa: S105 - of a server that nobody can reach
_CALLS = ("/api/users/get_my_user", "/api/projects/list", "/api/runs/list", "/api/fleets/list", "/api/volumes/list")
_URL = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Drilled:
    moment: Moment
    counts: Counter[str]  # what was checked
    problems: list[str]


def drill(backups: Backups, now: Micros, until: Micros | None = None) -> Drilled:
    with tempfile.TemporaryDirectory(prefix="dstack-drill-") as top:
        folder = Path(top) / "server"
        done = restore(backups, folder, now, until=until)
        counts: Counter[str] = Counter(records=done.records, files=done.files)
        with _server(folder) as root:
            problems = [*_of_records(root, counts), *_of_calls(root, counts)]
    return Drilled(done.moment, counts, problems)


@contextmanager
def _server(folder: Path) -> Iterator[EmbeddedRoot]:
    settings = ServerSettings(data_dir=folder, local_fleet=False)
    root = EmbeddedRoot(settings, declared(settings), _URL)
    try:
        yield root
    finally:
        root.close()


def _of_records(root: EmbeddedRoot, counts: Counter[str]) -> Iterator[str]:
    after = None
    while page := root.ports.store.scan(after, limit=500):
        for record in page:
            try:
                yield from _of_record(root, record, counts)
            except (DstackError, ValueError, TypeError) as error:
                yield f"{record.key}: {type(error).__name__}: {error}"
        after = page[-1].key


def _of_record(root: EmbeddedRoot, record: Record, counts: Counter[str]) -> Iterator[str]:
    family, _, id_ = record.key.pk.partition("/")
    ports = root.ports
    unit = KINDS.units.get(family)
    if unit is not None and unit.load is not None and record.key.sk == STATUS:
        snapshot = unit.load(root.reconciler.load, id_, ports.clock.now())
        if snapshot is not None:
            KINDS.checked(snapshot, unit.decide(snapshot))  # raises for a plan that breaks a rule
            counts["units"] += 1
    if family == "user" and record.key.sk == STATUS:
        ports.seal.open(nouns.read(User, record).ssh_private_key, context=record.key.pk)
        counts["seals"] += 1
    elif family == "project" and record.key.sk.startswith("secret/"):
        secret = nouns.read(Secret, record)
        ports.seal.open(secret.sealed, context=context_of(secret.project_id, secret.name))
        counts["seals"] += 1
    elif family == "archive":
        archive = nouns.read(Archive, record)
        if archive.size and not archive.erased and ports.blobs.get(archive.blob) is None:
            yield f"{record.key}: its file {archive.blob} is missing"
        counts["archives"] += 1
    elif family == "run" and record.key.sk == STATUS:
        for job in root.plane.read.jobs(id_):
            end = ports.logs.end(job.project_id, job.id)
            if not job.finished and end < job.log_end:
                yield f"the log of job {job.name} ends at {end}, not at {job.log_end}"
            counts["logs"] += end > 0


def _of_calls(root: EmbeddedRoot, counts: Counter[str]) -> Iterator[str]:
    """Ask it as its clients do, with a token that only this copy has."""
    first_start(root.plane, _TOKEN)
    for path in _CALLS:
        request = dispatch.Request("POST", path, headers={"authorization": f"Bearer {_TOKEN}"}, body=b"{}")
        reply = dispatch.answer(root.plane, request)
        if reply.status != 200:
            yield f"{path} answers {reply.status}: {orjson.loads(reply.body)}"
        counts["calls"] += 1
