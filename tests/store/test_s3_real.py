"""Blobs and logs on S3, as the emulator gives it: the same contracts as files keep."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.agent.program import chunks
from chalicelib.domain.log_chunks import LogChunk
from chalicelib.errors import Refused
from chalicelib.store.blobs import Blobs, S3Blobs
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.log_uploads import LogUpload, S3Uploads
from chalicelib.store.logs import LogStore
from chalicelib.store.memory import MemoryStore
from tests.emulators.ministack import Emulator
from tests.store.blob_contract import BlobContract
from tests.store.log_contract import J, LogContract, P, read_all, text

BUCKET = "plane"


@pytest.fixture(scope="module")
def s3(aws: Emulator) -> Any:
    client = aws.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def bucket(s3: Any) -> S3Blobs:
    blobs = S3Blobs(BUCKET, lambda: s3)
    for name in blobs.list("", limit=100_000):
        blobs.delete(name)
    return blobs


class TestS3Blobs(BlobContract):
    @pytest.fixture
    def blobs(self, bucket: S3Blobs) -> Blobs:
        return bucket


class TestS3Logs(LogContract):
    seeds, length = 1, 400

    @pytest.fixture
    def logs(self, bucket: S3Blobs) -> LogStore:
        return BlobLogs(MemoryStore(), bucket)


def test_the_client_is_made_at_the_first_use(s3: Any) -> None:
    made: list[int] = []

    def make() -> Any:
        made.append(1)
        return s3

    blobs = S3Blobs(BUCKET, make)
    assert made == []
    blobs.get("a")
    blobs.get("a")
    assert made == [1]


def test_more_names_than_one_answer_holds(bucket: S3Blobs) -> None:
    names = [f"n/{n:04d}" for n in range(1005)]
    for name in names:
        bucket.put(name, b"")
    assert bucket.list("n/", limit=2000) == names
    assert bucket.list("n/", limit=1002) == names[:1002]


def test_more_objects_are_deleted_than_one_request_takes(bucket: S3Blobs) -> None:
    names = [f"n/{n:04d}" for n in range(1_003)]
    bucket.put(names[-1], b"1")
    bucket.delete(*names)
    assert bucket.list("n/") == []


def test_a_bucket_that_is_not_there_is_named(s3: Any) -> None:
    blobs = S3Blobs("nowhere", lambda: s3)
    with pytest.raises(Refused, match="nowhere"):
        blobs.put("a", b"1")
    with pytest.raises(Refused, match="nowhere"):
        blobs.get("a")


def test_an_agent_puts_a_part_of_a_log_itself(bucket: S3Blobs, aws: Emulator) -> None:
    from chalicelib.runtime.lambda_ import Boto

    blobs = S3Blobs(BUCKET, lambda: Boto(aws.url)("s3"))
    logs = BlobLogs(MemoryStore(), blobs)
    uploads = S3Uploads(logs, blobs)
    chunk = chunks.Chunk(J, 0, [(1, b"hello "), (2, b"world\n" * 30_000)])
    fields = chunk.fields()
    order = uploads.offer(P, J, 0, fields["size"], fields["sha256"])
    assert (
        isinstance(order, LogUpload)
        and "X-Amz-SignedHeaders=content-length%3Bhost%3Bx-amz-checksum-sha256" in order.url
    )
    assert chunks.put(order.url, order.headers, chunk.payload) == ""
    made = LogChunk(project_id=P, job_id=J, first=0, last=chunk.end, low=1, high=2, blob="")
    assert uploads.enter(made, fields["sha256"]) == chunk.end == 180_006
    assert text(read_all(logs)) == b"hello " + b"world\n" * 30_000
    assert uploads.offer(P, J, 0, fields["size"], fields["sha256"]) == chunk.end
    assert chunks.put(order.url.replace(BUCKET, "nowhere"), order.headers, chunk.payload) != ""
