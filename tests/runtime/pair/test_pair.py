"""A server's part in its pair, on two data folders and a clock that is set by hand."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.api.dispatch import Reply, Request
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.instants import HOUR
from chalicelib.domain.keys import Key
from chalicelib.domain.leases import Lease
from chalicelib.domain.restorations import Restoration
from chalicelib.errors import Fenced, Refused
from chalicelib.runtime.backup_settings import BackupSettings
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.pair.copies import LOOKS
from chalicelib.runtime.pair.pair import Pair, check
from chalicelib.runtime.pair.places import FolderLease
from chalicelib.runtime.pair.protocol import Found
from chalicelib.runtime.pair.standby import NOBODY, Standby
from chalicelib.runtime.pair.tenure import Tenure, TenuredStore
from chalicelib.runtime.restored import restoration
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store import nouns
from chalicelib.store.backups import KeySource, part_place
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.port import Put, Record
from chalicelib.store.sqlite import SqliteStore
from chalicelib.usecases.operator.first_start import first_start

KEY = KeySource(secret=b"k" * 32)


class Elapsed:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Sometimes(FolderLease):
    """A place that can't be reached now and then."""

    away = False

    def read(self) -> Found | None:
        self._reached()
        return super().read()

    def swap(self, lease: Lease, after: str | None) -> Found | None:
        self._reached()
        return super().swap(lease, after)

    def _reached(self) -> None:
        if self.away:
            raise Refused("The place doesn't answer.")


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


@pytest.fixture
def made(tmp_path: Path, elapsed: Elapsed) -> Callable[..., Pair]:
    def make(name: str, boot: str = "1", meanwhile: Callable[[], None] = lambda: None) -> Pair:
        def pause(seconds: float) -> None:
            elapsed.now += seconds
            meanwhile()

        settings = ServerSettings(data_dir=tmp_path / name, pair_place=str(tmp_path / "place"))
        (settings.data_dir / "pair").mkdir(parents=True, exist_ok=True)
        place = tmp_path / "place"
        return Pair(settings, Sometimes(place), FileBlobs(place), KEY, elapsed, boot, pause)

    return make


def plane_in(folder: Path) -> None:
    with closing(EmbeddedRoot(ServerSettings(data_dir=folder), ServerConfig(projects=()), "http://a")) as root:
        first_start(root.plane, "token")


def note(pair: Pair, text: bytes, version: int = 1) -> None:
    with closing(SqliteStore(pair.folder / "plane.db")) as store:
        store.commit([Put(Record(Key("note", "1"), version, text), expect=None)])


def noted(pair: Pair) -> bytes | None:
    with closing(SqliteStore(pair.folder / "plane.db")) as store:
        found = store.get(Key("note", "1"))
    return None if found is None else found.body


def deciding(pair: Pair) -> Tenure:
    tenure = pair.begin()
    assert tenure is not None
    return tenure


def taken_over(standby: Standby, elapsed: Elapsed, lasts: float = 15.0) -> Tenure:
    standby.turn()
    assert standby.tenure is None
    elapsed.now += 2 * lasts
    standby.turn()
    assert standby.tenure is not None
    standby.restore()
    return standby.tenure


def test_the_other_server_takes_over_with_the_copy_that_the_lease_names(
    made: Callable[..., Pair], elapsed: Elapsed
) -> None:
    first, second = made("first"), made("second")
    standby = Standby(second)
    standby.turn()
    assert second.begin() is None and standby.why == NOBODY
    plane_in(first.folder)
    tenure = deciding(first)
    standby.turn()
    assert "has made no copy yet" in standby.why
    elapsed.now += 1_000  # without a copy there is nothing to take over
    standby.turn()
    assert standby.tenure is None

    tenure = deciding(first)
    copier = first.copier(tenure)
    note(first, b"copied")
    assert copier.copy() is not None
    tenure.renew()
    note(first, b"lost", 2)
    tenure = taken_over(standby, elapsed)
    assert noted(second) == b"copied"
    mark, now = restoration(second.folder, go_on=False)
    assert mark is not None and mark.looking(now) and mark.looks_until - mark.at == LOOKS
    assert tenure.epoch.number == 3 and tenure.decides


def test_what_a_server_copies_that_has_lost_its_lease_is_restored_by_nobody(
    made: Callable[..., Pair], elapsed: Elapsed, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = made("first"), made("second"), made("third")
    plane_in(first.folder)
    old = deciding(first)
    copier = first.copier(old)
    copier.copy()
    old.renew()
    new = taken_over(Standby(second), elapsed)
    note(second, b"by the second")
    assert second.copier(new).copy() is not None
    new.renew()

    note(first, b"by the first")
    assert copier.copy() is None and "no copy was made" in caplog.text
    object.__setattr__(old, "check", lambda: None)  # it was paused between its check and its write
    assert copier.copy() is not None
    taken_over(Standby(third), elapsed)
    assert noted(third) == b"by the second"


def test_after_a_servers_orderly_end_nothing_is_lost_and_nothing_looked_at(
    made: Callable[..., Pair], elapsed: Elapsed
) -> None:
    first, second = made("first"), made("second")
    plane_in(first.folder)
    tenure = deciding(first)
    note(first, b"last")
    first.copier(tenure).rest()
    tenure.renew()  # on its thread, which hasn't ended yet
    standby = Standby(second)
    standby.turn()
    assert "has stopped (epoch 1)" in standby.why
    taken_over(standby, elapsed, lasts=7.5)
    assert noted(second) == b"last" and restoration(second.folder, go_on=False)[0] is None
    found = second.leases.read()
    assert found is not None and not found.lease.rests


def test_a_server_that_starts_again_goes_on_at_once_unless_another_has_taken_over(
    made: Callable[..., Pair], elapsed: Elapsed
) -> None:
    first, second = made("first"), made("second")
    plane_in(first.folder)
    assert deciding(first).epoch.number == 1
    again = deciding(first)
    assert again.epoch.number == 2
    first.copier(again).copy()
    again.renew()
    taken_over(Standby(second), elapsed)
    with pytest.raises(Fenced, match=r"has taken over \(epoch 3\), and .*first is older than what is there"):
        first.begin()
    assert deciding(second).epoch.number == 4


def test_a_folder_on_another_machine_waits_until_nobody_uses_it_here(
    made: Callable[..., Pair], elapsed: Elapsed
) -> None:
    """It is a copy of one in use, or its machine has started again: the lease doesn't tell which."""
    first = made("first")
    plane_in(first.folder)
    tenure = deciding(first)
    since = elapsed.now
    assert deciding(made("first", boot="2")).epoch.number == 2 and elapsed.now == since + 2 * tenure.lasts

    second = made("second")
    used = deciding(made("first", boot="2"))
    assert used.epoch.number == 3 and elapsed.now == since + 2 * used.lasts, "at once: it is the same start"

    def taken() -> None:
        found = second.leases.read()
        assert found is not None
        second.leases.swap(replace(found.lease, epoch=found.lease.epoch + 1, owner="other", name="b"), found.version)

    with pytest.raises(Fenced, match=r"b has taken over \(epoch 4\)"):
        made("first", boot="3", meanwhile=taken).begin()


def test_a_takeover_that_was_cut_off_goes_on_at_the_next_start(made: Callable[..., Pair], elapsed: Elapsed) -> None:
    first, second = made("first"), made("second")
    plane_in(first.folder)
    tenure = deciding(first)
    first.copier(tenure).copy()
    tenure.renew()
    cut_off = Standby(second)
    cut_off.turn()
    elapsed.now += 30
    cut_off.turn()
    assert cut_off.tenure is not None and second.begin() is None
    standby = Standby(second)
    standby.turn()
    standby.restore()
    assert standby.tenure is not None and deciding(second)


def test_a_server_that_cant_renew_decides_nothing_and_says_so(
    made: Callable[..., Pair], elapsed: Elapsed, caplog: pytest.LogCaptureFixture
) -> None:
    first = made("first")
    plane_in(first.folder)
    tenure = deciding(first)
    executed: list[str] = []
    execute = tenure.guarded(executed.append)
    with closing(SqliteStore(first.folder / "plane.db")) as below:
        store = TenuredStore(below, tenure.check)
        change = Put(Record(Key("note", "1"), 1, b"{}"), expect=None)
        store.commit([change])
        execute("in time")
        first.leases.away = True  # type: ignore[attr-defined]
        elapsed.now += 14.9
        with caplog.at_level(logging.WARNING):
            tenure.renewals.work()
        assert "couldn't be renewed, and ends in 0 s: The place doesn't answer" in caplog.text
        assert tenure.decides and tenure.why() == ""
        elapsed.now += 0.1
        assert not tenure.decides and "couldn't renew its lease for 15 s" in tenure.why()
        for refused in (lambda: store.commit([change]), lambda: execute("late"), tenure.renew):
            with pytest.raises(Fenced):
                refused()
        assert executed == ["in time"] and store.get(Key("note", "1")) is not None


def test_a_renewal_without_a_result_that_was_made_counts(made: Callable[..., Pair], elapsed: Elapsed) -> None:
    first = made("first")
    plane_in(first.folder)
    tenure = deciding(first)
    found = first.leases.read()
    assert found is not None
    first.leases.swap(replace(found.lease, turn=1), found.version)  # its answer was lost
    elapsed.now += 10
    tenure.renew()
    elapsed.now += 10
    assert tenure.decides


def test_a_server_learns_at_its_next_renewal_that_it_was_taken_over_from(
    made: Callable[..., Pair], elapsed: Elapsed
) -> None:
    first = made("first")
    plane_in(first.folder)
    tenure = deciding(first)
    found = first.leases.read()
    assert found is not None
    first.leases.swap(replace(found.lease, epoch=2, owner="x", name="server-b"), found.version)
    with pytest.raises(Fenced, match=r"server-b has taken over \(epoch 2\): this server decides nothing"):
        tenure.renew()
    assert not tenure.decides
    with pytest.raises(Fenced):
        first.copier(tenure).rest()


def test_what_a_standby_answers(made: Callable[..., Pair]) -> None:
    first, second = made("first"), made("second")
    plane_in(first.folder)
    tenure = deciding(first)
    first.copier(tenure).copy()
    tenure.renew()
    standby = Standby(second)
    standby.turn()

    def asked(path: str) -> tuple[int, str]:
        found: Reply = standby.reply(Request(method="GET", path=path, headers={}, body=b""))
        assert isinstance(found.body, bytes)
        return found.status, found.body.decode()

    assert asked("/healthz") == (200, '{"alive":true,"role":"stands by","epoch":1}')
    status, body = asked("/readyz")
    assert status == 503 and f"This server stands by. {first.name} decides (epoch 1)." in body
    status, body = asked("/api/v1/projects")
    assert status == 503 and "This server stands by." in body


def test_settings_with_which_no_other_server_could_take_over_are_refused(tmp_path: Path) -> None:
    good = ServerSettings(
        data_dir=tmp_path / "server",
        public_url="https://dstack.example.com",
        local_fleet=False,
        pair_place=str(tmp_path / "place"),
    )
    check(good)
    for wrong, text in (
        (replace(good, public_url=None), "needs an address"),
        (replace(good, local_fleet=True), "no jobs on its own machine"),
        (replace(good, tls_acme="dstack.example.com"), "could get no certificate"),
        (replace(good, pair_place=str(tmp_path / "place.zip")), "a file"),
        (replace(good, pair_place=str(tmp_path / "server" / "x")), "would be lost with the folder"),
        (replace(good, backups=BackupSettings(to=f"{good.pair_place}/")), "Give each a place of its own"),
    ):
        with pytest.raises(Refused, match=text):
            check(wrong)


def test_a_place_that_knows_less_than_its_server_is_refused(
    made: Callable[..., Pair], elapsed: Elapsed, tmp_path: Path
) -> None:
    """Its disk isn't mounted at the start, or is taken away while the server decides. The other one decides there."""
    first = made("first")
    plane_in(first.folder)
    tenure = deciding(first)
    lease = tmp_path / "place" / "lease"
    lease.rename(tmp_path / "unmounted")
    with pytest.raises(Fenced, match=r"has no lease, but this server has held that of epoch 1"):
        first.begin()
    lease.mkdir()  # as the check at another server's start makes it
    with pytest.raises(Fenced, match="is gone"):
        tenure.renew()
    assert not tenure.decides and not list(lease.iterdir())

    lease.rmdir()
    (tmp_path / "unmounted").rename(lease)
    shutil.copytree(lease, tmp_path / "snapshot")
    assert deciding(first).epoch.number == 2
    shutil.rmtree(lease)
    (tmp_path / "snapshot").rename(lease)
    with pytest.raises(Fenced, match=r"has the lease of epoch 1, but this server has held that of epoch 2"):
        first.begin()
    (first.folder / "pair" / "lease").unlink()
    assert deciding(first)


def test_a_server_on_a_copy_of_a_folder_in_use_is_refused(made: Callable[..., Pair], elapsed: Elapsed) -> None:
    first = made("first")
    plane_in(first.folder)
    tenure = deciding(first)
    with pytest.raises(Fenced, match=r"A server decides on a copy of .*first \(epoch 1"):
        made("first", boot="2", meanwhile=tenure.renew).begin()
    assert tenure.decides


def test_nobody_takes_over_with_a_copy_that_isnt_whole(
    made: Callable[..., Pair], elapsed: Elapsed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, standby = made("first"), Standby(made("second"))
    plane_in(first.folder)
    tenure = deciding(first)
    moment = first.copier(tenure).copy()
    assert moment is not None
    tenure.renew()
    part = tmp_path / "place" / part_place(moment.records[0])
    sealed = part.read_bytes()
    for damaged in (sealed[:-1], b""):
        part.write_bytes(damaged)
        standby.turn()
        elapsed.now += 2 * tenure.lasts
        standby.turn()
        assert standby.tenure is None and "was changed or cut off" in standby.why
    assert [record.levelname for record in caplog.records if "couldn't take over" in record.message] == ["WARNING"]
    part.write_bytes(sealed)
    standby.turn()
    assert standby.tenure is not None
    standby.restore()


def test_a_server_that_only_looked_is_followed_by_one_that_only_looks(
    made: Callable[..., Pair], elapsed: Elapsed
) -> None:
    first, second, third = made("first"), made("second"), made("third")
    plane_in(first.folder)
    at = time.time_ns() // 1000
    with closing(SqliteStore(first.folder / "plane.db")) as store:
        store.commit([nouns.put(Restoration(as_of=at, at=at, looks_until=at + HOUR))])
    first.copier(deciding(first)).rest()
    tenure = taken_over(Standby(second), elapsed, lasts=7.5)
    mark, now = restoration(second.folder, go_on=False)
    assert mark is not None and mark.looking(now) and mark.looks_until == at + HOUR
    second.copier(tenure).copy()
    tenure.renew()
    taken_over(Standby(third), elapsed)
    mark, now = restoration(third.folder, go_on=False)
    assert mark is not None and mark.as_of > at and mark.looks_until == at + HOUR
