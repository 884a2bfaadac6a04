"""Backups in a bucket, as the emulator gives it."""

from __future__ import annotations

from pathlib import Path

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.instants import DAY
from chalicelib.runtime.backup import back_up
from chalicelib.runtime.backup_places import place_of
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.restore import restore
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store.backups import KeySource, opened
from tests.emulators.ministack import Emulator
from tests.world.time import NOW, Clock

KEY = KeySource(secret=b"k" * 32)


def test_backups_go_below_a_prefix_of_a_bucket_and_come_back(emulator: Emulator, tmp_path: Path) -> None:
    s3 = emulator.client("s3")
    s3.create_bucket(Bucket="backups")
    s3.put_object(Bucket="backups", Key="another/file", Body=b"of somebody else")
    folder = tmp_path / "server"
    folder.mkdir()
    EmbeddedRoot(ServerSettings(data_dir=folder), ServerConfig(projects=()), "http://a", clock=Clock()).close()
    for at in (NOW, NOW + DAY):
        with place_of("s3://backups/of/mine/", write=True, client=lambda: s3) as blobs:
            backups = opened(blobs, KEY, create=True)
            made = back_up(folder, backups, lambda at=at: at)
            backups.prune(NOW + 1, NOW + 1)
    assert made.added == 0
    names = [each["Key"] for each in s3.list_objects_v2(Bucket="backups")["Contents"]]
    assert len([name for name in names if name.startswith("of/mine/moments/")]) == 1
    assert all(name.startswith("of/mine/") or name == "another/file" for name in names)
    with place_of("s3://backups/of/mine", write=False, client=lambda: s3) as blobs:
        done = restore(opened(blobs, KEY, create=False), tmp_path / "new", NOW + DAY)
    assert done.moment == made and (tmp_path / "new" / "plane.db").is_file()
