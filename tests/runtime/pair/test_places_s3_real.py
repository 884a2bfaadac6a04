"""A pair whose place is a bucket, as the emulator gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.runtime.backup_settings import BackupSettings
from chalicelib.runtime.pair.pair import paired
from chalicelib.runtime.pair.places import BucketLease
from chalicelib.runtime.settings import ServerSettings
from tests.emulators.ministack import Emulator
from tests.runtime.pair.test_pair import plane_in
from tests.runtime.pair.test_places import holds


def test_in_a_bucket(emulator: Emulator) -> None:
    s3 = emulator.client("s3")
    s3.create_bucket(Bucket="pairs")
    holds(lambda: BucketLease("pairs", "of/mine/", lambda: s3))


def test_a_server_makes_the_copy_that_another_fetches(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**emulator.environment, "DSTACK_AWS_ENDPOINT": emulator.url}.items():
        monkeypatch.setenv(name, value)
    emulator.client("s3").create_bucket(Bucket="copies")
    first, second = (
        ServerSettings(
            data_dir=tmp_path / name,
            public_url="https://dstack.example.com",
            local_fleet=False,
            pair_place="s3://copies/of/mine",
            backups=BackupSettings(key_file=tmp_path / "key"),
        )
        for name in ("first", "second")
    )
    said: list[str] = []
    first.data_dir.mkdir()
    plane_in(first.data_dir)
    with paired(first, said.append) as pair:
        tenure = pair.begin()
        assert tenure is not None and "Made the key" in said[0]
        moment = pair.copier(tenure).copy()
        assert moment is not None
        tenure.renew()
    with paired(second, said.append) as other:
        assert other.begin() is None
        found = other.leases.read()
        assert found is not None and found.lease.moment == moment.name
        spare = other.spare()
        spare.fetch(found.lease.moment)
        spare.restore(found.lease.moment, second.data_dir, whole=True)
    assert (second.data_dir / "plane.db").is_file()
