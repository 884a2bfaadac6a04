"""Blobs that no record names, and agent programs that no machine asks for any more."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import DAY, MINUTE, SECOND
from chalicelib.domain.programs import NEWEST, blob_of, carrier_blob
from chalicelib.domain.tenants import Archive
from chalicelib.engine import stray_blobs
from chalicelib.engine.stray_blobs import StrayBlobs
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.agents import carriers, downloads
from tests.api.rig import Rig, fleet
from tests.api.test_fleets import add_instance, create
from tests.api.uploads import multipart, tar, upload
from tests.engine.test_erase_fleets import end
from tests.engine.test_erase_unused import FILES, archive, pass_days, turn
from tests.world.engine import Engine
from tests.world.time import NOW


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    yield made
    made.world.plane.store.close()


def dated(rig: Rig) -> None:
    """All that was written so far was written now, by the clock of the test."""
    for path in (rig.world.folder / "blobs").rglob("*"):
        if path.stat().st_mtime > rig.world.clock.now() / SECOND:
            os.utime(path, (rig.world.clock.now() / SECOND,) * 2)


def blobs(rig: Rig, folder: str = "archives/") -> list[str]:
    return rig.world.plane.blobs.list(folder)


def rounds(rig: Rig, days: float = 1.1) -> list[str]:
    """What the next turns delete, once a new round is due."""
    dated(rig)
    pass_days(rig, days)
    return [blob for _ in range(4) for blob in turn(rig).blobs]


def needed(rig: Rig) -> None:
    """An archive that a run was submitted with, or it would go after a day."""
    found = nouns.find(rig.world.plane.store, Archive, keys.archive(archive(rig)["id"]))
    assert found is not None
    rig.save(found.with_(submitted=True))


def broken_off(rig: Rig, *entries: tuple[str, bytes]) -> str:
    """An upload whose process dies between its bytes and its record."""
    sent = upload(rig, FILES, multipart(tar(*entries or (("a", b"1"),)))).json
    found = nouns.find(rig.world.plane.store, Archive, keys.archive(sent["id"]))
    assert found is not None
    rig.world.plane.store.commit([Delete(keys.archive(found.id))])
    return found.blob


def test_bytes_whose_record_never_came_go_after_a_day(rig: Rig) -> None:
    blob = broken_off(rig)
    assert rounds(rig, 0.9) == [] and blobs(rig) == [blob]
    rounds(rig)
    assert blobs(rig) == [] and rig.world.plane.store.query("gsi1", keys.ARCHIVES).records == ()


def test_bytes_that_a_record_names_stay(rig: Rig) -> None:
    needed(rig)
    (blob,) = blobs(rig)
    assert rounds(rig) == rounds(rig) == [] and blobs(rig) == [blob]


def test_the_same_content_can_be_uploaded_at_any_moment(rig: Rig) -> None:
    stray = broken_off(rig)
    dated(rig)
    pass_days(rig, 1.1)
    turn(rig)  # the claim
    assert blobs(rig) == [stray]
    sent = archive(rig)
    found = nouns.find(rig.world.plane.store, Archive, keys.archive(sent["id"]))
    assert found is not None and not found.erased and found.blob != stray
    pass_days(rig, 0.1)
    turn(rig), turn(rig)
    assert rig.world.plane.blobs.get(found.blob) is not None
    rig.ok("/api/files/get_archive_by_hash", {"hash": sent["hash"]})


def test_an_upload_that_comes_first_keeps_its_bytes(rig: Rig) -> None:
    """Its bytes replaced the stray's under the same name, and its record is there before the claim."""
    blob = broken_off(rig)
    dated(rig)
    pass_days(rig, 1.1)
    needed(rig)
    assert rounds(rig) == [] and blobs(rig) == [blob]


def test_bytes_under_a_name_of_their_own_go_at_once(rig: Rig) -> None:
    needed(rig)
    (blob,) = blobs(rig)
    rig.world.plane.blobs.put(f"{blob}-other", b"1")
    assert rounds(rig) == [f"{blob}-other"] and blobs(rig) == [blob]


def test_nothing_that_was_not_uploaded_is_touched(rig: Rig) -> None:
    for name in ("archives/readme", "logs/p/j/1", "catalog/a/1.json", "other"):
        rig.world.plane.blobs.put(name, b"1")
    assert rounds(rig) == [] and len(blobs(rig, "")) == 4


def test_code_is_looked_at_too(rig: Rig) -> None:
    stray = f"code/{rig.project.id}/{'a' * 64}"
    rig.world.plane.blobs.put(stray, b"1")
    rounds(rig)
    assert blobs(rig, "code/") == []


@pytest.mark.slow
def test_a_round_goes_on_page_by_page_and_begins_again_a_day_later(rig: Rig) -> None:
    plane = rig.world.plane
    names = [f"archives/{rig.project.id}/{n:064x}-x" for n in range(stray_blobs.BATCH + 2)]
    for name in names:
        path = rig.world.folder / "blobs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
    dated(rig)
    pass_days(rig, 2)
    one = StrayBlobs(plane.store, plane.blobs, rig.world.clock, list)
    assert one.run() == names[: stray_blobs.BATCH]
    assert StrayBlobs(plane.store, plane.blobs, rig.world.clock, list).run() == names[stray_blobs.BATCH :]
    assert one.run() == []
    at = rig.record(keys.ROUND)
    pass_days(rig, 0.9)
    assert one.run() == [] and rig.record(keys.ROUND) == at, "a round that is over reads one record"
    pass_days(rig, 0.2)
    one.run()
    assert rig.record(keys.ROUND).version == at.version + 1


def test_a_draft_that_nobody_finished_goes_too(rig: Rig) -> None:
    archive(rig)
    draft = next((rig.world.folder / "blobs/archives").iterdir()) / f".{'0' * 16}"
    draft.write_bytes(b"hal")
    rounds(rig)
    assert not draft.exists()


# --- programs -------------------------------------------------------------------------------------------------------


def release(rig: Rig, content: bytes) -> str:
    digest = downloads.publish(rig.world.plane.blobs, content)
    dated(rig)
    return blob_of(digest)


def bought(rig: Rig, made: Any, num: int, joined: bool = True) -> Instance:
    instance = add_instance(rig, made, num)
    if joined:
        instance = instance.with_(started_at=rig.world.clock.now() + MINUTE, version=1)
        rig.save(instance)
    return instance


def test_a_program_goes_once_no_machine_of_its_time_lives(rig: Rig) -> None:
    made = create(rig, fleet())
    one = release(rig, b"one")
    old = bought(rig, made, 0)
    assert rounds(rig) == []
    pass_days(rig, 10)
    two = release(rig, b"two")
    pass_days(rig, 10)
    young = bought(rig, made, 1)
    for _ in range(3):
        assert rounds(rig) == []
    assert set(blobs(rig, "agent/")) == {one, two, NEWEST}
    end(rig, old)
    assert rounds(rig) == [one], "the other machine was bought later"
    assert rounds(rig) == [] and set(blobs(rig, "agent/")) == {two, NEWEST}
    end(rig, young)
    assert rounds(rig) == [], "the newest stays, whoever lives"
    assert not rig.world.plane.store.query("main", f"program/{hashlib.sha256(b'one').hexdigest()}").records


def test_a_program_of_a_machine_that_starts_again_and_again_stays(rig: Rig) -> None:
    one = release(rig, b"one")
    bought(rig, create(rig, fleet()), 0)
    rounds(rig)
    release(rig, b"two")
    for _ in range(5):
        assert rounds(rig, 100) == []
    assert one in blobs(rig, "agent/")


def test_a_carrier_goes_as_a_program_does_and_the_newest_of_each_architecture_stays(rig: Rig) -> None:
    plane = rig.world.plane

    def publish(architecture: str, content: bytes) -> str:
        digest = carriers.publish(plane.blobs, architecture, "r-1", content)
        dated(rig)
        return carrier_blob(digest)

    old, arm = publish("x86", b"one"), publish("arm", b"one for arm")
    machine = bought(rig, create(rig, fleet()), 0)
    rounds(rig)
    pass_days(rig, 10)
    new = publish("x86", b"two")
    for _ in range(3):
        assert rounds(rig, 10) == [], "a machine of its time may start again"
    end(rig, machine)
    assert rounds(rig) == [old] and rounds(rig) == []
    assert {blob for blob in blobs(rig, "agent/") if blob.endswith(".tar.gz")} == {new, arm}


def test_a_program_that_became_the_newest_once_more_counts_to_the_end(rig: Rig) -> None:
    one = release(rig, b"one")
    rounds(rig)
    release(rig, b"two")
    rounds(rig, 5)
    assert release(rig, b"one") == one
    rounds(rig, 5)
    late = bought(rig, create(rig, fleet()), 0)
    release(rig, b"three")
    for _ in range(4):
        rounds(rig)
    assert one in blobs(rig, "agent/")
    end(rig, late)
    assert one in rounds(rig)


def test_programs_of_before_anybody_kept_account_go_too(rig: Rig) -> None:
    release(rig, b"old")
    pass_days(rig, 50)
    newest = release(rig, b"new")
    for _ in range(3):
        rounds(rig)
    assert set(blobs(rig, "agent/")) == {newest, NEWEST}


def test_a_program_may_have_been_the_newest_since_it_was_written(rig: Rig) -> None:
    """Nobody kept account of it before."""
    old = release(rig, b"old")
    pass_days(rig, 10)
    machine = bought(rig, create(rig, fleet()), 0)
    pass_days(rig, 50)
    release(rig, b"new")
    for _ in range(3):
        assert rounds(rig, 3) == []
    end(rig, machine)
    assert rounds(rig) == [old]


def test_the_newest_is_served_by_its_digest_even_if_only_the_newest_is_left(rig: Rig) -> None:
    plane = rig.world.plane
    digest = downloads.publish(plane.blobs, b"one")
    plane.blobs.delete(blob_of(digest))
    assert downloads.program(plane, digest) == b"one"
    with pytest.raises(NotFound):
        downloads.program(plane, "0" * 64)


def test_blobs_of_a_bucket_are_swept_by_the_same_rules() -> None:
    world = Engine.in_memory(lag=MINUTE)
    plane = world.plane
    stray = f"archives/{'o' * 8}/{'a' * 64}-x"
    plane.blobs.put(stray, b"1")
    one = StrayBlobs(plane.store, plane.blobs, world.clock, list)
    found = []
    for world.at in (NOW + DAY - 1, NOW + DAY - 1, NOW + 2 * DAY, NOW + 2 * DAY):
        found.append(one.run())
    assert found == [[], [], [stray], []]
