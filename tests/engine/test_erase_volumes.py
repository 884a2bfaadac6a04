"""Deleted volumes are erased, with their names; whatever else has the name keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.domain import keys
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.store import nouns
from tests.api.rig import Rig
from tests.api.test_volumes import create, stored
from tests.engine.test_erase_unused import Crashing, pass_days, turn
from tests.world.ports import accounts


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path, backends=accounts(BackendFacts(name="aws", volumes=True)))
    yield made
    made.world.plane.store.close()


def deleted(rig: Rig, name: str = "data") -> Volume:
    """As the engine does once its provider has nothing left."""
    gone = stored(rig, create(rig, name)).with_(
        status=VolumeStatus.deleted, deleted_at=rig.world.now(), due_at=None, last_processed_at=rig.world.now()
    )
    rig.save(gone)
    return gone


def pointed(rig: Rig, name: str = "data") -> str | None:
    found = nouns.find_target(rig.world.store, keys.volume_name(rig.project.id, name))
    return None if found is None else found[0]


def test_a_deleted_volume_goes_with_its_name_and_a_live_one_stays(rig: Rig) -> None:
    gone = deleted(rig)
    live = stored(rig, create(rig, "live"))
    pass_days(rig, 29.9)
    assert turn(rig).volumes == []
    pass_days(rig, 0.1)
    assert turn(rig).volumes == [gone.id]
    assert rig.world.store.get(keys.volume(gone.id)) is None and pointed(rig) is None
    assert stored(rig, {"id": live.id}) == live and pointed(rig, "live") == live.id
    assert turn(rig).volumes == []


def test_a_name_that_another_volume_has_is_kept(rig: Rig) -> None:
    gone = deleted(rig)
    pass_days(rig, 1)
    fresh = create(rig)
    pass_days(rig, 29)
    assert turn(rig).volumes == [gone.id]
    assert pointed(rig) == fresh["id"]


def test_a_claim_to_a_disk_goes_too_unless_another_volume_has_it(rig: Rig) -> None:
    external = {"backend": "aws", "region": "eu"}
    gone = [deleted(rig, name) for name in ("one", "two")]
    rig.save(*(rig.world.again(each).with_(external_id=f"vol-{each.name}", **external) for each in gone))
    own, anothers = (keys.disk("aws", "eu", f"vol-{each.name}") for each in gone)
    rig.world.store.commit([nouns.pointer(own, gone[0].id), nouns.pointer(anothers, "another")])
    pass_days(rig, 30)
    assert sorted(turn(rig).volumes) == sorted(each.id for each in gone)
    assert nouns.find_target(rig.world.store, own) is None
    assert nouns.find_target(rig.world.store, anothers) == ("another", 1)


def test_a_turn_that_crashes_leaves_the_rest_to_the_next(rig: Rig) -> None:
    gone = deleted(rig)
    pass_days(rig, 30)
    with pytest.raises(KeyboardInterrupt):
        turn(rig, Crashing(rig.world.store, 0, after=True))
    assert rig.world.store.get(keys.volume(gone.id)) is not None and pointed(rig) is None
    assert turn(rig).volumes == [gone.id]
    assert rig.world.store.get(keys.volume(gone.id)) is None and pointed(rig) is None
