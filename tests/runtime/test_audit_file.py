"""The audit log: every event once, in order, across restarts, and a changed bit is found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.audit_chain import Broken, Head, verified
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.errors import Refused
from chalicelib.runtime.audit_file import FileSink
from chalicelib.runtime.audit_log import BATCH, AuditLog
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store import nouns
from chalicelib.store.port import Record
from chalicelib.usecases.operator.first_start import first_start
from cli.screen.terminal import Terminal
from tests.world.cli import Dstack
from tests.world.time import NOW


def event(number: int) -> Event:
    return Event(
        id=f"e{number}",
        project_id="p",
        at=NOW + number,
        type=EventType.created,
        actor_name="ada",
        targets=(Target(type="secret", id="s", name="key"),),
    )


@dataclass
class Fed:
    events: list[Event] = field(default_factory=list)

    def feed_end(self) -> int:
        return len(self.events)

    def feed_after(self, place: int, limit: int) -> list[tuple[int, Record]]:
        rows = list(enumerate(self.events, 1))[place : place + limit]
        return [(at, _record(each)) for at, each in rows]


def _record(each: Event) -> Record:
    from chalicelib.store.memory import MemoryStore

    store = MemoryStore()
    store.commit([nouns.put(each)])
    found = store.get(nouns.key_of(each))
    assert found is not None
    return found


def audit_file(path: Path, feed: Fed) -> AuditLog:
    return AuditLog(FileSink(path), feed)


def whole(path: Path) -> Head:
    with path.open("rb") as lines:
        return verified(lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_each_event_is_written_once_whatever_restarts(path: Path) -> None:
    feed = Fed([event(n) for n in range(BATCH + 3)])
    audit_file(path, feed).write()
    again = audit_file(path, feed)
    again.write()
    feed.events.append(event(999))
    again.write()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["event"]["id"] for line in lines] == [each.id for each in feed.events]
    assert lines[0]["event"]["actor_name"] == "ada" and lines[0]["event"]["message"]
    assert whole(path).number == again.place == BATCH + 4 and path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_a_crash_cut_off_is_written_anew(path: Path) -> None:
    feed = Fed([event(n) for n in range(3)])
    audit_file(path, feed).write()
    before = path.read_bytes()
    path.write_bytes(before[:-7])
    audit_file(path, feed).write()
    assert path.read_bytes() == before
    path.write_bytes(before[:10])  # nothing but the beginning of the first
    audit_file(path, feed).write()
    assert path.read_bytes() == before


@pytest.mark.slow
def test_any_changed_bit_is_found(path: Path) -> None:
    audit_file(path, Fed([event(n) for n in range(3)])).write()
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            with pytest.raises(Broken):
                verified(bytes(changed).splitlines(keepends=True))


def test_lines_that_are_removed_added_or_moved_are_found(path: Path) -> None:
    audit_file(path, Fed([event(n) for n in range(4)])).write()
    a, b, c, d = path.read_bytes().splitlines(keepends=True)
    for lines in ([b, c, d], [a, c, d], [a, c, b, d], [a, b, b, c, d], [a, b, c, d, a]):
        with pytest.raises(Broken, match="doesn't follow the one before"):
            verified(lines)
    assert verified([a, b]).number == 2  # the end alone can't be known


def test_a_file_of_something_else_is_refused(path: Path) -> None:
    path.write_text("hello\n")
    with pytest.raises(Refused, match="doesn't end with a line of an audit log"):
        audit_file(path, Fed())
    assert path.read_text() == "hello\n"


def test_a_server_keeps_what_isnt_written_and_writes_it_when_it_stops(tmp_path: Path, path: Path) -> None:
    (tmp_path / "s").mkdir()
    root = EmbeddedRoot(ServerSettings(data_dir=tmp_path / "s", audit_file=path), ServerConfig(projects=()), "http://p")
    first_start(root.plane)
    root.erase()  # trims the feed
    root.close()
    head = whole(path)
    assert head.number >= 1 and '"type":"project"' in path.read_text()


def test_the_command_says_whether_it_holds_and_where_it_doesnt(path: Path) -> None:
    audit_file(path, Fed([event(n) for n in range(3)])).write()
    dstack, head = Dstack(Terminal(env={})), whole(path)
    assert dstack("audit", "verify", str(path)).out == f"3 events, none changed. The last one's hash: {head.hash}\n"
    path.write_bytes(path.read_bytes().replace(b"e1", b"e7"))
    ended = dstack("audit", "verify", str(path))
    assert ended.code == 1 and "line 2 was changed" in ended.err
    assert "can't be read" in dstack("audit", "verify", f"{path}.old").err
