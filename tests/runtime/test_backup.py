"""A data folder is backed up while its server runs, and comes back as it was, marked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, HOUR, Micros
from chalicelib.domain.keys import Key
from chalicelib.domain.restorations import LOOKS
from chalicelib.domain.sign_on import SignOn
from chalicelib.domain.tenants import User, hash_token
from chalicelib.errors import DataTooNew, Refused
from chalicelib.runtime.backup import back_up, left_out, moment_of
from chalicelib.runtime.backup_keys import back_up_if_due, backups_of, check_schedule, key_source
from chalicelib.runtime.backup_places import place_of
from chalicelib.runtime.backup_settings import BackupSettings
from chalicelib.runtime.data_folder import locked
from chalicelib.runtime.drill import drill
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.restore import Restored, restore
from chalicelib.runtime.restored import restoration
from chalicelib.runtime.settings import ServerSettings, backup_settings
from chalicelib.store import nouns, sqlite_snapshot
from chalicelib.store.backups import Backups, KeySource, opened
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.port import Put, Record
from chalicelib.store.sqlite import SCHEMA, SqliteStore
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.people.users import sign_on
from tests.world.time import NOW, Clock

KEY = KeySource(secret=b"k" * 32)
TOKEN = "admin-token"
NOTE = Key("note", "1")
P, J = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "server"


@pytest.fixture
def root(folder: Path) -> Iterator[EmbeddedRoot]:
    """A server's root, which holds its folder open."""
    folder.mkdir()
    made = started(folder)
    first_start(made.plane, TOKEN)
    made.ports.blobs.put("archives/x", b"code" * 1000)
    made.ports.logs.append(P, J, 0, [(NOW, b"hello\n")])
    yield made
    made.close()


def started(folder: Path) -> EmbeddedRoot:
    return EmbeddedRoot(ServerSettings(data_dir=folder), ServerConfig(projects=()), "http://a:3000", clock=Clock())


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    return opened(FileBlobs(tmp_path / "backups"), KEY, create=True)


def write(root: EmbeddedRoot, text: str, key: Key = NOTE) -> None:
    root.ports.store.commit([Put(Record(key, 1, text.encode()), expect=None)])


def restored(backups: Backups, tmp_path: Path, name: str = "new", until: Micros | None = None) -> tuple[Path, Restored]:
    place = tmp_path / name
    return place, restore(backups, place, NOW + DAY, until=until)


def everything(folder: Path) -> dict[str, Record]:
    with sqlite_snapshot.SqliteSnapshot(folder / "plane.db") as snapshot:
        return {str(record.key): record for record in snapshot.records()}


@pytest.mark.slow
def test_a_running_server_comes_back_whole_elsewhere(root: EmbeddedRoot, backups: Backups, tmp_path: Path) -> None:
    write(root, "kept")
    back_up(root._database.folder, backups, lambda: NOW)
    write(root, "lost")
    place, done = restored(backups, tmp_path)
    found = everything(place)
    assert found.pop("restoration:status") and found[str(NOTE)].body == b"kept"
    assert found == {**everything(root._database.folder), str(NOTE): found[str(NOTE)]}
    assert done.records == len(found) + 1
    assert place.stat().st_mode & 0o777 == 0o700 and (place / "master.key").stat().st_mode & 0o777 == 0o600
    again = started(place)
    try:
        assert again.install_id == root.install_id
        assert again.ports.blobs.get("archives/x") == b"code" * 1000
        assert again.ports.logs.end(P, J) == 6
        assert first_start(again.plane)[0] is None, "the admin is there, with their token"
    finally:
        again.close()


@pytest.mark.slow
def test_what_is_written_during_a_backup_is_in_the_next_one(
    root: EmbeddedRoot, backups: Backups, tmp_path: Path
) -> None:
    folder = root._database.folder
    with sqlite_snapshot.SqliteSnapshot(folder / "plane.db") as snapshot:
        write(root, "late")
        assert all(record.key != NOTE for record in snapshot.records())
    back_up(folder, backups, lambda: NOW)
    assert everything(restored(backups, tmp_path)[0])[str(NOTE)].body == b"late"


@pytest.mark.slow
def test_each_backup_is_a_moment_to_go_back_to(root: EmbeddedRoot, backups: Backups, tmp_path: Path) -> None:
    for hour in range(3):
        write(root, f"at {hour}")
        made = back_up(root._database.folder, backups, lambda hour=hour: NOW + hour * HOUR)
    assert made.added < 10_000, "the program and the key weren't stored again"
    assert everything(restored(backups, tmp_path, "a")[0])[str(NOTE)].body == b"at 2"
    assert everything(restored(backups, tmp_path, "b", NOW + HOUR)[0])[str(NOTE)].body == b"at 1"
    assert everything(restored(backups, tmp_path, "c", moment_of(made.name))[0])[str(NOTE)].body == b"at 2"
    with pytest.raises(Refused, match="no backup up to"):
        restored(backups, tmp_path, "d", NOW - 1)


def test_what_belongs_to_machines_or_is_made_anew_is_left_out() -> None:
    known = (
        "server.lock",
        "agent",
        "agent-1",
        "agent.pyz",
        "fake-cloud",
        "admin.token",
        "plane.db-wal",
        "audit-syslog.json",
        "lost+found",
        ".x",
        "a.draft",
    )
    assert all(map(left_out, known))
    assert not any(map(left_out, ("blobs", "logs", "templates", "master.key", "install.key", "config.yml", "agenda")))


@pytest.mark.slow
def test_a_growing_log_adds_only_its_end_and_files_may_vanish(root: EmbeddedRoot, backups: Backups) -> None:
    folder = root._database.folder
    (folder / "link").symlink_to("/etc/hostname")
    first = back_up(folder, backups, lambda: NOW)
    root.ports.logs.append(P, J, 6, [(NOW, b"more\n")])
    root.ports.blobs.delete("archives/x")
    second = back_up(folder, backups, lambda: NOW + 1)
    assert second.counts["files"] == first.counts["files"] - 1
    paths = {entry.path for entry in backups.files(second)}
    assert f"logs/{P}/{J}.log" in paths and "link" not in paths and "archives/x" not in paths


@pytest.mark.slow
def test_backups_of_two_servers_dont_mix(root: EmbeddedRoot, backups: Backups, tmp_path: Path) -> None:
    back_up(root._database.folder, backups, lambda: NOW)
    (tmp_path / "other").mkdir()
    other = started(tmp_path / "other")
    try:
        with pytest.raises(Refused, match="are of another server"):
            back_up(tmp_path / "other", backups, lambda: NOW + 1)
    finally:
        other.close()
    with pytest.raises(Refused, match="isn't the data folder of a server"):
        back_up(tmp_path, backups, lambda: NOW)


@pytest.mark.slow
def test_nothing_is_restored_over_anything(root: EmbeddedRoot, backups: Backups, tmp_path: Path) -> None:
    back_up(root._database.folder, backups, lambda: NOW)
    with pytest.raises(Refused, match="isn't empty"):
        restore(backups, root._database.folder, NOW)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "server.lock").touch()
    restored(backups, tmp_path, "empty")


@pytest.mark.slow
def test_a_folder_that_exists_stays_because_it_may_be_a_volume(
    root: EmbeddedRoot, backups: Backups, tmp_path: Path
) -> None:
    back_up(root._database.folder, backups)
    volume = tmp_path / "volume"
    (volume / "lost+found").mkdir(parents=True)
    (volume / ".restoring" / "archives").mkdir(parents=True)  # of a restore that was killed
    before = volume.stat().st_ino
    records = restore(backups, volume, NOW, revoke=lambda: _refused_start(volume)).records
    assert volume.stat().st_ino == before
    assert len(everything(volume)) == records
    assert {each.name for each in volume.iterdir()} >= {"plane.db", "install.key", "lost+found", "blobs", "logs"}
    assert not [each for each in volume.iterdir() if each.name.startswith(".")]
    assert root._database.folder.joinpath("install.key").read_text() == (volume / "install.key").read_text()


def _refused_start(folder: Path) -> str:
    with pytest.raises(Refused, match="Another server"):
        locked(folder)
    return "token"


def test_backups_in_the_data_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    for place in (folder / "backups", folder / "before.zip", folder):
        settings = BackupSettings(to=str(place), passphrase="words")
        with pytest.raises(Refused, match="lost with the folder"), backups_of(settings, print, folder=folder):
            pass
    with pytest.raises(Refused, match="lost with the folder"):
        check_schedule(folder, BackupSettings(to=str(folder / "backups"), passphrase="words"))
    assert not list(folder.iterdir())


@pytest.mark.slow
def test_a_restore_that_fails_leaves_nothing(root: EmbeddedRoot, backups: Backups, tmp_path: Path) -> None:
    made = back_up(root._database.folder, backups, lambda: NOW)
    (tmp_path / "backups" / "parts" / made.records[0][:2] / made.records[0]).unlink()
    before = set(tmp_path.iterdir())
    with pytest.raises(Refused, match="is missing"):
        restored(backups, tmp_path)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_a_backup_of_a_newer_version_is_refused_with_the_way_back(
    root: EmbeddedRoot, backups: Backups, tmp_path: Path
) -> None:
    made = back_up(root._database.folder, backups, lambda: NOW)
    backups.add(replace(made, at=NOW + HOUR, store=SCHEMA + 1, program="9.9"))
    with pytest.raises(DataTooNew, match=r"newer version \(9\.9\)"):
        restored(backups, tmp_path)
    restored(backups, tmp_path, until=NOW)


@pytest.mark.slow
def test_later_events_get_places_that_no_audit_log_has_passed(
    root: EmbeddedRoot, backups: Backups, tmp_path: Path
) -> None:
    database = root._database
    back_up(database.folder, backups, lambda: NOW)
    pending, ahead = database.feed_after(0, 100), database.feed_end() + 10_000
    place, _ = restored(backups, tmp_path)
    with closing(SqliteStore(place / "plane.db")) as store:
        assert [each for each, _ in store.feed_after(0, 100)] == [each for each, _ in pending] != []
        event = pending[0][1]
        new = Record(Key(event.key.pk, f"{event.key.sk}-new"), 1, event.body)
        store.commit([Put(new, expect=0)])
        assert store.feed_end() > max(ahead, NOW)


@pytest.mark.slow
def test_tokens_come_back_unless_all_are_revoked(root: EmbeddedRoot, backups: Backups, tmp_path: Path) -> None:
    admin = next(
        nouns.read(User, record) for key, record in everything(root._database.folder).items() if key.startswith("user/")
    )
    until = NOW + DAY
    entry = SignOn(token_hash=hash_token("signed-on"), user_id=admin.id, provider="p", created_at=NOW, ends_at=until)
    root.ports.store.commit(sign_on(entry))
    back_up(root._database.folder, backups, lambda: NOW)
    kept = everything(restored(backups, tmp_path, "kept")[0])
    assert {str(keys.token(hash_token(one))) for one in (TOKEN, "signed-on")} <= kept.keys()
    place = tmp_path / "revoked"
    done = restore(backups, place, NOW + DAY, revoke=lambda: "fresh")
    found = everything(place)
    assert done.revoked == 2
    assert [key for key in found if key.startswith("token/")] == [str(keys.token(hash_token("fresh")))]
    assert nouns.read(User, found[str(keys.user(admin.id))]).token_hash == hash_token("fresh")
    again = started(place)
    try:
        assert first_start(again.plane, "next")[0] == "next"
    finally:
        again.close()


@pytest.mark.slow
def test_a_restored_folder_is_marked_until_somebody_says_go_on(
    root: EmbeddedRoot, backups: Backups, tmp_path: Path
) -> None:
    back_up(root._database.folder, backups, lambda: NOW)
    place, _ = restored(backups, tmp_path)
    mark, _ = restoration(place, go_on=False)
    assert mark is not None and (mark.as_of, mark.at, mark.looks_until) == (NOW, NOW + DAY, NOW + DAY + LOOKS)
    assert mark.looking(NOW + DAY) and not mark.looking(NOW + DAY + LOOKS)
    back_up(place, backups, lambda: NOW + DAY + HOUR)
    again, _ = restored(backups, tmp_path, "again")
    assert len([key for key in everything(again) if key.startswith("restoration")]) == 1
    with pytest.raises(Refused, match="isn't the data folder"):
        restoration(tmp_path, go_on=False)


# --- the drill --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_drill_checks_a_backup_and_leaves_nothing(
    root: EmbeddedRoot, backups: Backups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "drills"))
    (tmp_path / "drills").mkdir()
    back_up(root._database.folder, backups, lambda: NOW)
    done = drill(backups, NOW + DAY)
    assert done.problems == [] and done.counts["seals"] == 1 and done.counts["calls"] == 5
    assert list((tmp_path / "drills").iterdir()) == []


@pytest.mark.slow
def test_a_drill_finds_what_is_wrong(root: EmbeddedRoot, backups: Backups) -> None:
    write(root, '{"id":"x","name":"x"}', keys.run("x"))
    write(root, '{"id":"a","owner_id":"u","hash":"h","blob":"archives/gone","size":5}', keys.archive("a"))
    (root._database.folder / "master.key").write_text("00" * 32)
    back_up(root._database.folder, backups, lambda: NOW)
    problems = "\n".join(drill(backups, NOW + DAY).problems)
    assert "run/x:status: ValidationError" in problems
    assert "archive/a:status: its file archives/gone is missing" in problems
    assert "doesn't open with this server's keys" in problems


# --- keys, places, schedules ------------------------------------------------------------------------------------------


def test_the_first_backup_makes_the_key_which_may_not_be_in_what_it_restores(tmp_path: Path) -> None:
    settings = BackupSettings(key_file=tmp_path / "keys" / "mine")
    with pytest.raises(Refused, match="There is no key"):
        key_source(settings)
    source, news = key_source(settings, folder=tmp_path / "server")
    assert "keep a copy" in news and key_source(settings) == (source, "")
    assert (tmp_path / "keys" / "mine").stat().st_mode & 0o777 == 0o600
    with pytest.raises(Refused, match="would be lost with the folder"):
        key_source(BackupSettings(key_file=tmp_path / "server" / "key"), folder=tmp_path / "server")
    with pytest.raises(Refused, match="needs a key of its own"):
        key_source(BackupSettings())
    assert key_source(BackupSettings(passphrase="x"))[0].passphrase == "x"


def test_a_key_that_cant_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="can't be read: Is a directory"):
        key_source(BackupSettings(key_file=tmp_path))


def test_settings_of_backups() -> None:
    env = {"DSTACK_BACKUP_TO": "/b", "DSTACK_BACKUP_EVERY": "15m", "DSTACK_BACKUP_KEEP": "2d"}
    found = backup_settings({**env, "DSTACK_BACKUP_PASSPHRASE": "p"})
    assert (found.to, found.every, found.keep, found.passphrase) == ("/b", 900, 172_800, "p")
    assert "passphrase" not in repr(found)
    assert backup_settings({"DSTACK_BACKUP_PASSPHRASE": "p"}, key_file=Path("k")).passphrase == ""
    for wrong in ("soon", "1s"):
        with pytest.raises(Exception, match="DSTACK_BACKUP_EVERY"):
            backup_settings({"DSTACK_BACKUP_EVERY": wrong})


@pytest.mark.slow
def test_a_file_is_one_backup_whole_or_not_there(root: EmbeddedRoot, tmp_path: Path) -> None:
    name = str(tmp_path / "files" / "one.zip")
    with pytest.raises(ZeroDivisionError), place_of(name, write=True) as blobs:
        opened(blobs, KEY, create=True)
        raise ZeroDivisionError
    assert list((tmp_path / "files").iterdir()) == []
    with place_of(name, write=True) as blobs:
        back_up(root._database.folder, opened(blobs, KEY, create=True), lambda: NOW)
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["one.zip"]
    with place_of(name, write=False) as blobs:
        assert restore(opened(blobs, KEY, create=False), tmp_path / "new", NOW).moment.at == NOW
    with pytest.raises(Refused, match="a file holds one backup"), place_of(name, write=True):
        pass
    (tmp_path / "files" / "text.zip").write_text("no archive")
    for wrong, says in (("text.zip", "can't be read as a backup"), ("none.zip", "There is no file")):
        with pytest.raises(Refused, match=says), place_of(str(tmp_path / "files" / wrong), write=False):
            pass


def test_a_folder_takes_one_backup_at_a_time(tmp_path: Path) -> None:
    with (
        place_of(str(tmp_path / "b"), write=True),
        pytest.raises(Refused, match="under way"),
        place_of(str(tmp_path / "b"), write=True),
    ):
        pass
    with place_of(str(tmp_path / "b"), write=True), place_of(str(tmp_path / "b"), write=False):
        pass


@pytest.mark.slow
def test_a_schedule_backs_up_when_the_last_backup_is_old_enough(root: EmbeddedRoot, tmp_path: Path) -> None:
    folder = root._database.folder
    settings = BackupSettings(to=str(tmp_path / "b"), every=3600, keep=2 * 86_400, key_file=tmp_path / "key")
    check_schedule(folder, settings)
    assert back_up_if_due(folder, settings, lambda: NOW) is not None
    assert back_up_if_due(folder, settings, lambda: NOW + HOUR - 1) is None
    assert back_up_if_due(folder, settings, lambda: NOW + HOUR) is not None
    assert back_up_if_due(folder, settings, lambda: NOW + 3 * DAY) is not None
    with backups_of(settings, print) as found:
        assert len(found.moments()) == 1, "the others are older than two days"


@pytest.mark.slow
def test_a_backup_is_good_even_if_old_ones_cant_be_deleted(
    root: EmbeddedRoot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = root._database.folder
    settings = BackupSettings(to=str(tmp_path / "b"), keep=9_000, key_file=tmp_path / "key")
    made = [back_up_if_due(folder, settings, lambda n=n: NOW + n * HOUR) for n in range(3)]  # type: ignore[misc]
    assert made[1] is not None
    (tmp_path / "b" / "moments" / made[1].name).write_bytes(b"damaged")
    assert back_up_if_due(folder, settings, lambda: NOW + 3 * HOUR) is not None
    assert "weren't deleted" in caplog.text and "wasn't backed up" not in caplog.text


@pytest.mark.slow
def test_a_file_that_an_earlier_version_kept_is_not_restored_and_none_comes_beside_the_folder(
    root: EmbeddedRoot, backups: Backups, tmp_path: Path
) -> None:
    made = back_up(root._database.folder, backups, lambda: NOW)
    for at, path in enumerate(("audit-syslog.json", "../beside"), 1):
        line = orjson.dumps([path, 2, 0, [backups.put(b"{}")]]) + b"\n"
        backups.add(replace(made, at=NOW + at, files=(*made.files, backups.put(line))))
    place, done = restored(backups, tmp_path, until=NOW + 1)
    assert done.files == made.counts["files"] and not (place / "audit-syslog.json").exists()
    with pytest.raises(Refused, match="belongs to no data folder"):
        restored(backups, tmp_path, "other")
    assert not (tmp_path / "beside").exists()


def test_a_schedule_that_fails_is_logged_and_one_that_cant_work_is_refused(
    root: EmbeddedRoot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    settings = BackupSettings(to=str(tmp_path / "file"), key_file=tmp_path / "key")
    assert back_up_if_due(root._database.folder, settings, lambda: NOW) is None
    assert "wasn't backed up" in caplog.text
    with pytest.raises(Refused, match="holds one backup"):
        check_schedule(tmp_path, BackupSettings(to="x.zip"))
    with pytest.raises(Refused, match="needs a key"):
        check_schedule(tmp_path, BackupSettings(to="x"))
    check_schedule(tmp_path, BackupSettings())
