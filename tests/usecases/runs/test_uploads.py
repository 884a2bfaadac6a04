"""Output that an agent uploads itself: an address for exactly that, and a record once it is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program.chunks import Chunk
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.errors import Invalid
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.log_pages import LogQuery
from chalicelib.store.log_uploads import S3Uploads
from chalicelib.usecases.context import SizeLimits
from tests.usecases.cluster import Cluster, exited, running
from tests.world.nouns import PROJECT
from tests.world.plane import World
from tests.world.time import NOW


class Bucket(FileBlobs):
    """Its addresses are names: `put` is what the holder of one does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.listed: list[str] = []  # prefixes, of which S3 would look up a thousand names at a time

    def list(self, prefix: str, *given: Any, **more: Any) -> list[str]:
        self.listed.append(prefix)
        return super().list(prefix, *given, **more)

    def signed(self, name: str, size: int, checksum: str, seconds: int) -> tuple[str, dict[str, str]]:
        return name, {"size": str(size), "checksum": checksum}


class Side:
    def __init__(self, folder: Path, **changes: Any) -> None:
        self.world = World.in_folder(folder)
        self.bucket = Bucket(folder / "bucket")
        self.logs = BlobLogs(self.world.store, self.bucket)
        uploads: Any = S3Uploads(self.logs, self.bucket)  # type: ignore[arg-type]
        self.world.plane = replace(self.world.plane, logs=self.logs, uploads=uploads, **changes)
        self.cluster = Cluster.of(self.world)
        self.cluster.agent.join()
        self.job: Job = self.cluster.place()

    def sync(self, chunk: Chunk, **parts: Any) -> dict[str, Any]:
        return self.cluster.agent.sync(running(self.job), chunks=[chunk.fields()], **parts)

    def store(self, chunk: Chunk, **parts: Any) -> dict[str, Any]:
        (order,) = self.sync(chunk, **parts)["uploads"]
        self.bucket.put(order["url"], chunk.payload)
        chunk.stored = True
        return self.sync(chunk, **parts)

    def cursor(self, answer: dict[str, Any]) -> int:
        (found,) = answer["logs"]
        assert found["task"] == self.job.id and answer["uploads"] == []
        return int(found["offset"])

    def log(self) -> bytes:
        return b"".join(data for _, data in self.logs.read(PROJECT, self.job.id).records)


def chunk(side: Side, offset: int, *lines: bytes, at: int = NOW) -> Chunk:
    return Chunk(side.job.id, offset, [(at + number, line) for number, line in enumerate(lines)])


def test_what_is_announced_put_and_reported_is_the_log(tmp_path: Path) -> None:
    side = Side(tmp_path)
    first, second = chunk(side, 0, b"one\n", b"two\n"), chunk(side, 8, b"three\n")
    assert side.cursor(side.store(first)) == 8
    assert side.log() == b"one\ntwo\n"
    assert side.cursor(side.store(second)) == 14
    assert side.log() == b"one\ntwo\nthree\n"


def test_the_address_is_for_that_content_alone(tmp_path: Path) -> None:
    side = Side(tmp_path)
    log = chunk(side, 0, b"one\n")
    answer = side.sync(log)
    (order,) = answer["uploads"]
    assert answer["log_put"] == 16 * 1024
    assert order["headers"]["size"] == str(len(log.payload)) and order["url"].startswith(
        f"logs/{PROJECT}/{side.job.id}/"
    )
    (other,) = side.sync(chunk(side, 0, b"two\n"))["uploads"]
    assert other["url"] != order["url"] and other["headers"]["checksum"] != order["headers"]["checksum"]


def test_however_long_a_log_is_nothing_of_it_is_listed_on_the_way(tmp_path: Path) -> None:
    side, at = Side(tmp_path), 0
    for number in range(20):
        line = b"%d\n" % number
        side.store(chunk(side, at, line))
        at += len(line)
    side.sync(chunk(side, 0, b"again\n"))
    assert side.bucket.listed == []
    assert side.log() == b"".join(b"%d\n" % number for number in range(20))


def test_nothing_is_of_the_log_before_it_is_reported(tmp_path: Path) -> None:
    side = Side(tmp_path)
    log = chunk(side, 0, b"one\n")
    (order,) = side.sync(log)["uploads"]
    side.bucket.put(order["url"], log.payload)
    assert side.log() == b"" and side.logs.end(PROJECT, side.job.id) == 0
    side.logs.delete(PROJECT, side.job.id)
    assert side.bucket.list("") == []  # what was never reported goes with the log


@pytest.mark.parametrize("again", ["announced", "reported"])
def test_what_comes_twice_is_there_once(tmp_path: Path, again: str) -> None:
    side = Side(tmp_path)
    log = chunk(side, 0, b"one\n")
    side.store(log)
    log.stored = again == "reported"
    assert side.cursor(side.sync(log)) == 4
    assert side.log() == b"one\n" and len(side.bucket.list("")) == 1


def test_a_gap_is_refused(tmp_path: Path) -> None:
    side = Side(tmp_path)
    ahead = chunk(side, 4, b"two\n")
    assert side.cursor(side.sync(ahead)) == 0
    ahead.stored = True
    assert side.cursor(side.sync(ahead)) == 0
    assert side.log() == b""


def test_a_job_ends_when_all_that_it_wrote_is_there(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.cluster.agent.sync(exited(side.job, 0, log_end=4))
    assert not side.cluster.job(side.job).finished
    side.store(chunk(side, 0, b"one\n"))
    side.cluster.agent.sync(exited(side.job, 0, log_end=4))
    assert side.cluster.job(side.job).status is JobStatus.done


def test_too_much_output_ends_the_job_and_is_put_nowhere(tmp_path: Path) -> None:
    side = Side(tmp_path, limits=SizeLimits(log_bytes_per_hour=100))
    side.cluster.agent.sync(running(side.job))
    log = chunk(side, 0, b"x" * 200)
    assert side.cursor(side.sync(log)) == 200
    assert side.cluster.job(side.job).reason == "log_quota_exceeded" and side.bucket.list("") == []


def test_the_times_are_read_by_the_servers_clock(tmp_path: Path) -> None:
    side = Side(tmp_path)
    late = chunk(side, 0, b"one\n", at=NOW - 60 * MINUTE)
    wrong = side.world.now() - 60 * MINUTE
    side.cluster.agent.sync(running(side.job), at=wrong)
    side.store(late, at=wrong)
    (found,) = side.logs.read(PROJECT, side.job.id).records
    assert abs(found[0] - NOW) < MINUTE
    assert side.logs.read(PROJECT, side.job.id, LogQuery(start=NOW - MINUTE, end=NOW + MINUTE)).records == (found,)


@pytest.mark.parametrize(
    "wrong", [{"end": 0}, {"size": 0}, {"sha256": "x"}, {"low": 2**60}, {"end": 10**6}, {"size": 4 * 13 + 1}]
)
def test_what_cant_be_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    side = Side(tmp_path)
    fields = {**chunk(side, 0, b"one\n").fields(), **wrong}
    with pytest.raises(Invalid):
        side.cluster.agent.sync(running(side.job), chunks=[fields])


def test_every_byte_may_be_a_record_of_its_own(tmp_path: Path) -> None:
    side = Side(tmp_path)
    log = chunk(side, 0, b"o", b"n", b"e")
    assert len(log.payload) == 3 * 13
    assert side.cursor(side.store(log)) == 3


def test_no_other_jobs_log_is_reached(tmp_path: Path) -> None:
    side = Side(tmp_path)
    fields = {**chunk(side, 0, b"one\n").fields(), "task": "another"}
    answer = side.cluster.agent.sync(running(side.job), chunks=[fields])
    assert answer["uploads"] == answer["logs"] == []


def test_where_messages_carry_all_output_nothing_is_offered(tmp_path: Path) -> None:
    side = Side(tmp_path)
    side.world.plane = replace(side.world.plane, uploads=None)
    answer = side.sync(chunk(side, 0, b"one\n"))
    assert "log_put" not in answer and "uploads" not in answer
