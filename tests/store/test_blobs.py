"""Blobs in files: the contract, and what only a disk can do wrong."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from chalicelib.domain.instants import SECOND
from chalicelib.errors import Invalid, Refused
from chalicelib.store.blobs import Blobs, FileBlobs, S3Blobs
from tests.store.blob_contract import BlobContract


class TestFileBlobs(BlobContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> Blobs:
        return FileBlobs(tmp_path / "blobs")


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    FileBlobs(tmp_path / "blobs").put("a/b", b"1")
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "blobs/a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "blobs/a/b").stat().st_mode) == 0o600


def test_a_draft_left_by_a_crash_is_no_blob(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put("a/b", b"1")
    (tmp_path / "a" / ".0123").write_bytes(b"hal")
    assert blobs.list("") == ["a/b"]


def test_an_old_draft_goes_and_a_young_one_may_still_be_written(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put("a/b", b"1")
    old, young, foreign = (tmp_path / "a" / name for name in (f".{'0' * 16}", f".{'1' * 16}", ".keep"))
    for path in (old, young, foreign):
        path.write_bytes(b"hal")
    for path in (old, foreign, tmp_path / "a" / "b"):
        os.utime(path, (1_000, 1_000))
    os.utime(young, (1_001, 1_001))
    blobs.tidy(1_001 * SECOND)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [young.name, foreign.name, "b"]


def test_a_blob_that_would_also_be_a_folder_is_refused(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put("a/b", b"1")
    for name in ("a", "a/b/c"):
        with pytest.raises(Invalid, match="at once"):
            blobs.put(name, b"2")
    assert blobs.list("") == ["a/b"]


FILL = """
import resource, sys
from chalicelib.domain.instants import SECOND
from chalicelib.errors import StorageFull
from chalicelib.store.blobs import FileBlobs
blobs = FileBlobs(sys.argv[1])
blobs.put("a", b"first")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    blobs.put("a", b"x" * 5000)
except StorageFull as error:
    print(error)
assert blobs.get("a") == b"first" and blobs.list("") == ["a"]
"""


@pytest.mark.slow
def test_a_blob_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", FILL, tmp_path], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert "Make room" in child.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_bucket_that_cannot_be_reached_is_named() -> None:
    class Away:
        def get_object(self, **arguments: Any) -> Any:
            raise EndpointConnectionError(endpoint_url="https://s3.example.com")

    with pytest.raises(Refused, match=r"bucket mine didn't answer get_object: .*s3\.example\.com"):
        S3Blobs("mine", Away).get("logs/a")


def test_what_a_bucket_would_not_delete_is_named() -> None:
    class Refusing:
        def delete_objects(self, **arguments: Any) -> Any:
            return {"Errors": [{"Key": "logs/a", "Code": "AccessDenied"}]}

    with pytest.raises(Refused, match=r"bucket mine didn't answer delete_objects: logs/a: AccessDenied"):
        S3Blobs("mine", Refusing).delete("logs/a")


@pytest.mark.slow
def test_a_bucket_gives_addresses_and_a_folder_none(tmp_path: Path) -> None:
    import boto3
    from botocore.config import Config
    from botocore.stub import Stubber

    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
    client = boto3.client("s3", config=Config(signature_version="s3v4"), **keys)
    stubbed = Stubber(client)
    stubbed.add_response("head_object", {}, {"Bucket": "mine", "Key": "agent/a"})
    stubbed.add_client_error("head_object", "404")
    with stubbed:
        link = S3Blobs("mine", lambda: client).link("agent/a", 600) or ""
        assert S3Blobs("mine", lambda: client).link("agent/b", 600) is None, "there is no such blob"
    assert "/agent/a?" in link and "X-Amz-Expires=600" in link and "X-Amz-Signature=" in link
    assert FileBlobs(tmp_path).link("agent/a", 600) is None
    with pytest.raises(Invalid):
        S3Blobs("mine", lambda: client).link("../a", 600)
