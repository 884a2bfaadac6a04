"""What no plan may do to a volume, whoever decides it; what closes and erases volumes."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.closings import Closing
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND
from chalicelib.domain.retention import Retention
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.errors import Bug
from chalicelib.planning.kernel.plan import Effect, Outcome, Step
from chalicelib.planning.kernel.requests import delete_volume
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.projects.deletion import CHECK_CLOSING_EVERY, ClosingSnapshot, decide_closing
from chalicelib.planning.projects.erasure import volume_erasable
from chalicelib.planning.volumes.invariants import volumes
from chalicelib.planning.volumes.snapshot import VolumeSnapshot
from chalicelib.planning.volumes.volumes import (
    CreateVolume,
    DeleteVolume,
    DiskLeft,
    RegisterVolume,
    VolumeCreated,
    VolumeNotCreated,
    decide_disk,
    decide_volume,
)
from tests.world import nouns as b
from tests.world.nouns import lint
from tests.world.volumes import attachment

UNTIL = b.NOW + MINUTE


def volume(**changes: Any) -> Volume:
    fields: dict[str, Any] = {
        "id": "v-1",
        "project_id": b.PROJECT,
        "name": "data",
        "configuration": "{}",
        "backend": "aws",
        "size_gib": 1,
        "created_at": b.NOW,
        "last_processed_at": b.NOW,
        "due_at": UNTIL,
        "version": 1,
    }
    return Volume(**{**fields, **changes})


def active(**changes: Any) -> Volume:
    found = {"status": VolumeStatus.active, "handle": Handle(kind="volume", id="vol-1"), "active_at": b.NOW}
    return volume(**{**found, **changes})


def effect(kind: type[Effect], until: int = UNTIL) -> Effect:
    return kind("volume/v-1", "aws", until)


DELETING = active(status=VolumeStatus.deleting)
BROKEN: dict[str, tuple[Volume | None, Effect | None, str]] = {
    "nobody looks at it": (active(due_at=None), None, "nothing will look at it again"),
    "nor at what remains": (
        volume(status=VolumeStatus.failed, remains=True, due_at=None),
        None,
        "nothing will look at it again",
    ),
    "nor at one that is attached": (
        volume(status=VolumeStatus.failed, attachments=(attachment(),), due_at=None),
        None,
        "nothing will look at it again",
    ),
    "deleted while it is attached": (
        volume(status=VolumeStatus.deleted, attachments=(attachment(),), due_at=None),
        None,
        "is deleted while it is attached",
    ),
    "created without being committed": (None, effect(CreateVolume), "without being submitted"),
    "created when it is there": (active(act_until=UNTIL), effect(CreateVolume), "without being submitted"),
    "created with another act_until": (
        volume(act_until=UNTIL + 1),
        effect(CreateVolume),
        "an act_until other than the committed one",
    ),
    "an external one is created": (volume(act_until=UNTIL, external_id="x"), effect(CreateVolume), "though it"),
    "one of ours is registered": (volume(act_until=UNTIL), effect(RegisterVolume), "though it"),
    "deleted without being committed": (None, effect(DeleteVolume), "isn't being deleted"),
    "deleted while it is active": (active(), effect(DeleteVolume), "isn't being deleted"),
    "deleted under a machine": (
        DELETING.with_(attachments=(attachment(),)),
        effect(DeleteVolume),
        "while it is attached, or isn't ours",
    ),
    "an external one is deleted": (
        DELETING.with_(external_id="x"),
        effect(DeleteVolume),
        "while it is attached, or isn't ours",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_found(name: str) -> None:
    saved, act, message = BROKEN[name]
    found = list(volumes(Step(() if saved is None else (saved,), effects=() if act is None else (act,)), {}))
    assert len(found) == 1 and message in found[0]


@pytest.mark.parametrize(
    ("saved", "act"),
    [
        (volume(act_until=UNTIL), effect(CreateVolume)),
        (volume(act_until=UNTIL, external_id="x"), effect(RegisterVolume)),
        (DELETING, effect(DeleteVolume)),
        (volume(status=VolumeStatus.failed, remains=True), effect(DeleteVolume)),
        (volume(status=VolumeStatus.failed, due_at=None), None),
        (volume(status=VolumeStatus.deleted, due_at=None), None),
    ],
)
def test_what_is_right_is_let_through(saved: Volume, act: Effect | None) -> None:
    assert list(volumes(Step((saved,), effects=() if act is None else (act,)), {})) == []


def test_a_volume_that_its_provider_makes_is_looked_at_by_whoever_comes_next() -> None:
    of = volume(act_until=UNTIL)
    made = VolumeCreated(of.unit, of.epoch, UNTIL, Handle(kind="volume", id="vol-1"))
    (step,) = decide_disk(VolumeSnapshot(b.NOW, of, facts=BackendFacts(name="aws")), made).steps
    (saved,) = (noun for noun in step.saves if isinstance(noun, Volume))
    assert (saved.status, saved.handle, saved.act_until) == (VolumeStatus.provisioning, made.handle, None)


@pytest.mark.parametrize(
    ("error", "retry_after", "pause"),
    [
        ("Throttled", None, 5 * SECOND),
        ("Throttled", 40.0, 40 * SECOND),
        ("Throttled", 0.0, SECOND),
        ("Transient", None, 20 * SECOND),  # it may have taken effect, and shows only then
        ("Transient", 40.0, 40 * SECOND),
    ],
)
def test_a_creation_that_failed_is_in_flight_until_it_is_repeated(
    error: str, retry_after: float | None, pause: int
) -> None:
    of, facts = volume(act_until=UNTIL), BackendFacts(name="aws", visibility_lag=20 * SECOND)
    failed = VolumeNotCreated(of.unit, error, "no luck", retry_after, of.epoch, UNTIL)
    (step,) = decide_disk(VolumeSnapshot(b.NOW, of, facts=facts), failed).steps
    (saved,) = (noun for noun in step.saves if isinstance(noun, Volume))
    assert (saved.act_until, saved.due_at) == (b.NOW + pause, b.NOW + pause)


def test_an_outcome_of_something_else_is_a_bug() -> None:
    with pytest.raises(Bug):
        decide_disk(VolumeSnapshot(b.NOW, active()), Outcome("volume/v-1"))


@pytest.mark.parametrize("status", [VolumeStatus.deleting, VolumeStatus.deleted])
def test_a_deletion_that_comes_twice_plans_nothing(status: VolumeStatus) -> None:
    assert delete_volume(volume(status=status), Draft(b.NOW)).empty


def test_a_failed_volume_that_is_deleted_before_its_remains_are_gone_goes_with_them() -> None:
    failed = volume(status=VolumeStatus.failed, remains=True)
    (step,) = delete_volume(failed, Draft(b.NOW)).steps
    (deleting,) = (noun for noun in step.saves if isinstance(noun, Volume))
    snapshot = VolumeSnapshot(UNTIL, deleting)
    plan = decide_disk(snapshot, DiskLeft(deleting.unit, deleting.epoch, b.NOW))
    assert lint(snapshot, plan) == []
    (gone,) = (noun for step in plan.steps for noun in step.saves if isinstance(noun, Volume))
    assert (gone.status, gone.remains, gone.due_at) == (VolumeStatus.deleted, False, None)


def test_a_look_too_early_changes_nothing() -> None:
    for early in (active(), DELETING, volume(status=VolumeStatus.provisioning), volume(act_until=UNTIL)):
        assert decide_volume(VolumeSnapshot(b.NOW, early)).empty


# --- the project's end, and its own ----------------------------------------------------------------------------------


def test_a_closing_project_deletes_its_volumes() -> None:
    closing = Closing(id=b.PROJECT, began_at=b.NOW, due_at=b.NOW)
    snapshot = ClosingSnapshot(b.NOW, closing, (), (), (active(),))
    plan = decide_closing(snapshot)
    assert lint(snapshot, plan) == []
    after = {noun.kind: noun for step in plan.steps for noun in step.saves}
    assert after["volume"].status is VolumeStatus.deleting
    assert after["closing"].due_at == b.NOW + CHECK_CLOSING_EVERY
    again = ClosingSnapshot(b.NOW + HOUR, closing, (), (), (after["volume"],))
    [step] = decide_closing(again).steps
    assert [noun.kind for noun in step.saves] == ["closing"] and step.saves[0].due_at is not None  # type: ignore[attr-defined]


def test_a_deleted_volume_is_kept_as_long_as_fleets_are() -> None:
    gone = volume(status=VolumeStatus.deleted, deleted_at=b.NOW, due_at=None)
    retention = Retention(fleets=3)
    assert not volume_erasable(gone, retention, b.NOW + 3 * DAY - 1)
    assert volume_erasable(gone, retention, b.NOW + 3 * DAY)
    assert not volume_erasable(active(), retention, b.NOW + 100 * DAY)
