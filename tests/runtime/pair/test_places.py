"""The lease in a folder and in a bucket: of two swaps one wins, however old the other's knowledge is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.leases import Lease
from chalicelib.errors import Refused
from chalicelib.runtime.pair.places import KEPT, BucketLease, FolderLease, LeasePlace

LEASE = Lease("pair", 1, "me", "server-a", 15.0)


def holds(make: Callable[[], LeasePlace]) -> None:
    """Several places of one lease do what the protocol asks."""
    one, other = make(), make()
    one.check()
    assert one.read() is None
    first = one.swap(LEASE, None)
    assert first is not None and other.swap(LEASE, None) is None
    assert other.read() == first and first.lease == LEASE
    second = other.swap(replace(LEASE, epoch=2), first.version)
    assert second is not None and second.version != first.version
    assert one.swap(replace(LEASE, turn=1), first.version) is None
    assert one.read() == second


def test_in_a_folder(tmp_path: Path) -> None:
    holds(lambda: FolderLease(tmp_path / "place"))


def test_a_store_without_conditions_is_refused() -> None:
    class Careless:
        def put_object(self, **values: Any) -> dict[str, str]:
            return {"ETag": '"1"'}

    with pytest.raises(Refused, match="takes writes whatever their condition"):
        BucketLease("pairs", "", Careless).check()


def test_a_folder_that_cant_hold_a_lease_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lease").write_text("a file")
    with pytest.raises(Refused, match="can't hold a lease"):
        FolderLease(tmp_path).check()


def test_one_whose_knowledge_is_so_old_that_its_successor_is_deleted_loses(tmp_path: Path) -> None:
    place = FolderLease(tmp_path)
    old = found = place.swap(LEASE, None)
    for turn in range(KEPT + 2):
        assert found is not None
        found = place.swap(replace(LEASE, turn=turn), found.version)
    assert old is not None and not (tmp_path / "lease" / f"{int(old.version) + 1:012d}").exists()
    assert place.swap(replace(LEASE, owner="other"), old.version) is None
    assert place.read() == found
    assert len(list((tmp_path / "lease").iterdir())) == KEPT


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    start, won = threading.Barrier(8), []

    def swap(owner: str) -> None:
        place = FolderLease(tmp_path)
        start.wait()
        if place.swap(replace(LEASE, owner=owner), None) is not None:
            won.append(owner)

    threads = [threading.Thread(target=swap, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = FolderLease(tmp_path).read()
    assert found is not None and won == [found.lease.owner]
