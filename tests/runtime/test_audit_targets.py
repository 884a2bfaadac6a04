"""Audit logs in several files, in a bucket and over syslog: each is one chain, and what is missing is found."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.domain.audit_chain import Broken, Head, rotated, verified
from chalicelib.errors import Invalid, Refused, Transient
from chalicelib.runtime.audit_file import FileSink
from chalicelib.runtime.audit_log import BATCH, AuditLog, AuditLogs
from chalicelib.runtime.audit_s3 import S3Sink
from chalicelib.runtime.audit_syslog import Address, SyslogSink, address_of
from chalicelib.runtime.audit_targets import AuditTargets, bucket_of
from chalicelib.runtime.s3_client import s3_client
from cli.commands import audit as command
from cli.screen.terminal import Terminal
from tests.runtime.test_audit_file import Fed, event
from tests.world.cli import Dstack


def grown(feed: Fed, log: AuditLog, number: int, each: int = 3) -> None:
    """Write so many batches of events."""
    for _ in range(number):
        feed.events += [event(len(feed.events) + n) for n in range(each)]
        log.write()


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def names(path: Path) -> list[str]:
    return rotated(path, (each.name for each in path.parent.iterdir()))


def test_a_chain_goes_on_from_file_to_file_and_across_restarts(path: Path) -> None:
    feed = Fed()
    grown(feed, AuditLog(FileSink(path, 1), feed), 3)
    grown(feed, AuditLog(FileSink(path, 1), feed), 1)
    assert names(path) == [f"audit.{first:012d}.jsonl" for first in (1, 4, 7)]
    said = Dstack(Terminal(env={}))("audit", "verify", str(path))
    assert said.out.startswith("12 events, none changed.")


def test_a_crash_between_two_files_leaves_one_chain(path: Path) -> None:
    feed = Fed()
    grown(feed, AuditLog(FileSink(path, 1), feed), 2)
    path.rename(path.with_name("audit.000000000004.jsonl"))
    grown(feed, AuditLog(FileSink(path, 1), feed), 1)
    assert Dstack(Terminal(env={}))("audit", "verify", str(path)).out.startswith("9 events, none changed.")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_file_is_found(path: Path, missing: int) -> None:
    feed = Fed()
    grown(feed, AuditLog(FileSink(path, 1), feed), 4)
    path.with_name(names(path)[missing]).unlink()
    said = Dstack(Terminal(env={}))("audit", "verify", str(path))
    assert said.code == 1 and "doesn't follow the one before" in said.err


def test_other_files_beside_it_are_no_part_of_it(path: Path) -> None:
    others = ["audit.jsonl", "audit.1.jsonl", "other.000000000001.jsonl", "audit.000000000001.jsonl.gz"]
    assert rotated(path, [*others, "audit.000000000002.jsonl"]) == ["audit.000000000002.jsonl"]


# --- S3 ---------------------------------------------------------------------------------------------------------------


class Bucket:
    """S3, as far as an audit log asks it."""

    class exceptions:
        ClientError = KeyError

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lose = False  # the next answer, after the object is there
        self.asked = 0

    def list_objects_v2(self, *, Bucket: str, Prefix: str, StartAfter: str, MaxKeys: int) -> Any:
        self.asked += 1
        found = sorted(name for name in self.objects if name.startswith(Prefix) and name > StartAfter)[:MaxKeys]
        return {"Contents": [{"Key": name} for name in found]} if found else {}

    def get_object(self, *, Bucket: str, Key: str) -> Any:
        from io import BytesIO

        return {"Body": BytesIO(self.objects[Key])}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str, IfNoneMatch: str) -> None:
        assert IfNoneMatch == "*"
        if Key in self.objects:
            raise RuntimeError("PreconditionFailed")
        self.objects[Key] = Body
        if self.lose:
            self.lose = False
            raise TimeoutError("no answer")

    def get_paginator(self, name: str) -> Any:
        assert name == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[Any]:
        for name in sorted(name for name in self.objects if name.startswith(Prefix)):
            yield {"Contents": [{"Key": name}]}

    def log(self, feed: Fed) -> AuditLog:
        return AuditLog(S3Sink("company", "audit", self, 60), feed)

    @property
    def lines(self) -> list[bytes]:
        return b"".join(self.objects[name] for name in sorted(self.objects)).splitlines(keepends=True)


def test_objects_continue_the_chain_and_none_is_written_twice() -> None:
    bucket, feed = Bucket(), Fed()
    for _ in range(5):
        grown(feed, bucket.log(feed), 2)
    assert verified(bucket.lines).number == len(feed.events) == 30
    assert list(bucket.objects)[:2] == [f"audit/{1:012d}-{3:012d}.jsonl", f"audit/{4:012d}-{6:012d}.jsonl"]


def test_an_answer_that_is_lost_leaves_one_chain() -> None:
    bucket, feed = Bucket(), Fed()
    log = bucket.log(feed)
    grown(feed, log, 1)
    bucket.lose = True
    with pytest.raises(Transient, match=r"s3://company/audit/000000000004-000000000006\.jsonl: no answer"):
        grown(feed, log, 1)
    grown(feed, log, 1)
    assert verified(bucket.lines).number == 9 and len(bucket.objects) == 3


@pytest.mark.parametrize("number", [1, 2, 3, 7, 8, 33])
def test_the_newest_object_is_found_by_halves(number: int) -> None:
    bucket, feed = Bucket(), Fed()
    grown(feed, bucket.log(feed), number, each=2)
    bucket.asked = 0
    assert S3Sink("company", "audit", bucket, 60).end().number == 2 * number and bucket.asked < 16


def test_more_events_than_fit_one_object_are_in_several() -> None:
    bucket, feed = Bucket(), Fed()
    grown(feed, bucket.log(feed), 1, each=BATCH + 1)
    assert len(bucket.objects) == 2 and verified(bucket.lines).number == BATCH + 1


def test_what_is_no_audit_log_is_refused() -> None:
    bucket = Bucket()
    bucket.objects["audit/000000000001-000000000001.jsonl"] = b"hello\n"
    with pytest.raises(Refused, match="doesn't end with a line of an audit log"):
        bucket.log(Fed())
    bucket.objects = {"audit/zzz": b""}
    with pytest.raises(Refused, match="zzz is no part of an audit log"):
        bucket.log(Fed())


def test_a_profile_that_there_isnt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(Refused, match="nobody"):
        s3_client("Backups")


def test_a_missing_object_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, feed = Bucket(), Fed()
    grown(feed, bucket.log(feed), 3)
    monkeypatch.setattr(command, "_s3", lambda: bucket)
    dstack = Dstack(Terminal(env={}))
    assert dstack("audit", "verify", "s3://company/audit").out.startswith("9 events, none changed.")
    del bucket.objects[sorted(bucket.objects)[1]]
    said = dstack("audit", "verify", "s3://company/audit")
    assert said.code == 1 and "line 4 doesn't follow the one before" in said.err
    assert "There is nothing in s3://company/elsewhere" in dstack("audit", "verify", "s3://company/elsewhere").err


# --- syslog -----------------------------------------------------------------------------------------------------------


def chain_in(messages: list[bytes]) -> list[bytes]:
    """The lines in messages of RFC 5424."""
    lines = []
    for message in messages:
        head, _, line = message.partition(b" - {")
        priority, at, host, program, process, kind = head.split(b" ")
        assert (priority, host, program, process, kind) == (b"<110>1", b"gpu-1", b"dstack", b"-", b"created")
        assert at.endswith(b"+00:00") or at.endswith(b"Z")
        lines.append(b"{" + line + b"\n")
    return lines


def framed(data: bytes) -> list[bytes]:
    """Messages with their lengths before them."""
    found = []
    while data:
        length, _, data = data.partition(b" ")
        found.append(data[: int(length)])
        data = data[int(length) :]
    return found


@pytest.mark.parametrize("scheme", ["unix", "udp"])
def test_datagrams_have_a_message_each(tmp_path: Path, scheme: str) -> None:
    if scheme == "unix":
        where = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        where.bind(str(tmp_path / "log"))
        address = address_of(f"unix://{tmp_path / 'log'}")
    else:
        where = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        where.bind(("127.0.0.1", 0))
        address = address_of(f"udp://127.0.0.1:{where.getsockname()[1]}")
    feed, sink = Fed(), SyslogSink(address, tmp_path, host="gpu-1")
    grown(feed, AuditLog(sink, feed), 2)
    where.settimeout(10)
    received = [where.recv(65_536) for _ in feed.events]
    where.close()
    sink._close()
    assert verified(chain_in(received)).number == 6


def test_a_stream_has_lengths_and_goes_on_after_a_restart_with_the_same_chain(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address, feed, received = address_of(f"tcp://127.0.0.1:{listener.getsockname()[1]}"), Fed(), b""
    for _ in range(2):
        sink = SyslogSink(address, tmp_path, host="gpu-1")
        grown(feed, AuditLog(sink, feed), 1)
        sink._close()
        taken, _ = listener.accept()
        with taken:
            while part := taken.recv(65_536):
                received += part
    listener.close()
    assert verified(chain_in(framed(received))).number == 6
    assert (tmp_path / "audit-syslog.json").stat().st_mode & 0o777 == 0o600


def test_a_stream_that_its_server_closed_is_opened_again_before_anything_is_sent(tmp_path: Path) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    there = iter([ours for ours, _ in pairs])
    feed = Fed([event(0)])
    sink = SyslogSink(Address("tcp", "logs", 601), tmp_path, host="gpu-1", connect=lambda _: next(there))
    log, received = AuditLog(sink, feed), b""
    for number, (_, theirs) in enumerate(pairs, 1):
        log.write()
        theirs.settimeout(10)
        received += theirs.recv(65_536)
        theirs.close()
        feed.events.append(event(number))
    assert verified(chain_in(framed(received))).number == 2
    sink._close()


def test_what_couldnt_be_sent_is_sent_later(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    there = iter([OSError("refused"), ours])

    def connect(address: Address) -> socket.socket:
        found = next(there)
        if isinstance(found, OSError):
            raise found
        return found

    feed = Fed([event(0)])
    log = AuditLog(SyslogSink(Address("udp", "logs", 514), tmp_path, host="gpu-1", connect=connect), feed)
    with pytest.raises(Transient, match="syslog at logs:514: refused"):
        log.write()
    assert log.place == 0
    log.write()
    assert log.place == 1 and verified(chain_in([theirs.recv(65_536)])).number == 1
    ours.close()
    theirs.close()


def test_over_tls_nothing_is_sent_to_a_server_that_cant_show_who_it_is(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        listener.accept()[0].close()

    answered = threading.Thread(target=answer)
    answered.start()
    address = address_of(f"tls://127.0.0.1:{listener.getsockname()[1]}")
    with pytest.raises(Transient, match="can't be sent to syslog at"):
        AuditLog(SyslogSink(address, tmp_path), Fed([event(0)])).write()
    answered.join()
    listener.close()


def test_a_damaged_note_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audit-syslog.json").write_text('{"wrong": 1}')
    with pytest.raises(Refused, match="doesn't say how far"):
        AuditLog(SyslogSink(Address("udp", "logs", 514), tmp_path), Fed())


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_environment_says_where() -> None:
    env = {"FILE": "/var/log/audit.jsonl", "FILE_MB": "100", "S3": "s3://company-audit/gpu/", "SYSLOG": "tls://logs"}
    found = AuditTargets.read({f"DSTACK_SERVER_AUDIT_{name}": value for name, value in env.items()})
    assert found == AuditTargets(100 * 2**20, ("company-audit", "gpu"), Address("tls", "logs", 6514))
    assert AuditTargets.read({}) == AuditTargets() and bucket_of("s3://company", "X") == ("company", "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FILE_MB", "many"),
        ("FILE_MB", "5"),  # without a file
        ("S3", "company-audit"),
        ("S3", "s3://UPPER/x"),
        ("SYSLOG", "logs.example.com"),
        ("SYSLOG", "tcp://user@logs"),
        ("SYSLOG", "http://logs"),
        ("SYSLOG", "udp://logs:port"),
        ("SYSLOG", "unix://host/dev/log"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=f"DSTACK_SERVER_AUDIT_{name}"):
        AuditTargets.read({f"DSTACK_SERVER_AUDIT_{name}": value})


def test_events_are_kept_until_the_slowest_has_them(tmp_path: Path) -> None:
    bucket, feed = Bucket(), Fed([event(n) for n in range(4)])
    quick = AuditLog(FileSink(tmp_path / "a.jsonl"), feed)
    logs = AuditLogs([quick, bucket.log(feed)])
    quick.write()
    assert (logs.settled(9), quick.place) == (0, 4)
    logs.close()
    assert (logs.settled(9), logs.settled(2)) == (4, 2) and AuditLogs(()).settled(7) == 7
    assert orjson.loads(bucket.lines[0])["number"] == 1 and Head().number == 0
    with pytest.raises(Broken):
        verified(bucket.lines[1:])
