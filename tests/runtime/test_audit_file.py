"""The audit log: every event once, in order, across restarts, and a changed bit is found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain import keys
from chalicelib.domain.audit_chain import Broken, Head, verified
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.errors import Refused
from chalicelib.runtime.audit_file import FileSink
from chalicelib.runtime.audit_log import BATCH, AuditLog
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store import nouns
from chalicelib.store.history import events_in, grouped
from chalicelib.store.listing import all_of
from chalicelib.store.port import Record
from chalicelib.usecases.operator.first_start import first_start
from cli.screen.terminal import Terminal
from tests.api.rig import ADMIN, Rig, submit, task
from tests.world.cli import Dstack
from tests.world.plane import World
from tests.world.time import NOW, Clock


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
    path.write_text('{"no": "newline"}')
    with pytest.raises(Refused, match="is no audit log"):
        audit_file(path, Fed())
    assert path.read_text() == '{"no": "newline"}'
    for cut_off in ("", '{"num', '{"number":1,"place"', "\0\0"):
        path.write_text(cut_off)
        assert audit_file(path, Fed()).place == 0


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


class Grouped(Fed):
    """A feed whose records have three events each, as commits make them."""

    def feed_after(self, place: int, limit: int) -> list[tuple[int, Record]]:
        groups = [self.events[first : first + 3] for first in range(0, len(self.events), 3)]
        rows = list(enumerate(groups, 1))[place : place + limit]
        return [(at, record) for at, group in rows for record in grouped([nouns.put(each).record for each in group])]


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.slow
def test_events_of_one_record_are_all_written_wherever_a_crash_cuts(path: Path, size: int) -> None:
    feed = Grouped([event(n) for n in range(6)])

    def log() -> AuditLog:
        return AuditLog(FileSink(path, size), feed)

    log().write()
    feed.events += [event(n) for n in range(6, 12)]
    log().write()
    before = path.read_bytes()
    assert [json.loads(line)["place"] for line in before.splitlines()][-6:] == [2, 2, 3, 3, 3, 4]
    earlier = {each: each.read_bytes() for each in path.parent.glob("audit.0*")}
    for cut in range(0, len(before) + 1, 7):
        for each in path.parent.glob("audit.0*"):
            each.unlink()
        for each, data in earlier.items():
            each.write_bytes(data)
        path.write_bytes(before[:cut])
        log().write()
        files = [*sorted(path.parent.glob("audit.0*")), path]
        assert b"".join(each.read_bytes() for each in files) == b"".join((*earlier.values(), before)), cut
    assert verified(b"".join((*earlier.values(), before)).splitlines(keepends=True)).number == 12


@pytest.mark.slow
def test_a_servers_own_events_are_all_in_it(tmp_path: Path, path: Path) -> None:
    (tmp_path / "s").mkdir()
    root = EmbeddedRoot(ServerSettings(data_dir=tmp_path / "s", audit_file=path), ServerConfig(projects=()), "http://p")
    _, project = first_start(root.plane, ADMIN)
    rig = Rig(World(root.plane, Clock(), tmp_path), project)
    submit(rig, task())
    stored = [each for page in (project.id, "") for each in all_of(root.plane.store, "main", keys.events_of(page))]
    ids = sorted(each.id for record in stored for each in events_in(record))
    root.close()
    assert sorted(json.loads(line)["event"]["id"] for line in path.read_bytes().splitlines()) == ids
    assert whole(path).number == len(ids) > 3 > len(stored) - len(ids)
