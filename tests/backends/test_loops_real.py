"""Volumes of the simulated cloud as loop devices of this computer, where its kernel has some for us."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.launch import LocalLauncher
from chalicelib.backends.simulated.loops import GIB, LoopDevices
from chalicelib.backends.simulated.state import FolderResources
from chalicelib.errors import Unfit
from tests.backends.conformance import request_for
from tests.backends.conformance.requests import volume_request
from tests.backends.conformance.volumes import on
from tests.harness.server import until


def ready() -> bool:
    """Whether loop devices can be set up and mounted here."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4") is not None


needs_loops = pytest.mark.skipif(not ready(), reason="needs root, loop devices and mkfs.ext4")


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[LoopDevices]:
    found = LoopDevices(tmp_path / "images")
    yield found
    for image in (tmp_path / "images").glob("*.img"):
        found.unplug(image.stem, pulled=True)


def attached(image: str) -> list[str]:
    done = subprocess.run(["losetup", "-n", "-O", "NAME", "-j", image], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_volume_is_a_sparse_file(devices: LoopDevices, tmp_path: Path) -> None:
    devices.make("vol-1", 50)
    image = tmp_path / "images" / "vol-1.img"
    assert image.stat().st_size == 50 * GIB and image.stat().st_blocks * 512 < GIB
    assert image.stat().st_mode & 0o077 == 0
    image.write_bytes(b"kept")
    devices.make("vol-1", 50)
    assert image.read_bytes() == b"kept"
    devices.drop("vol-1")
    devices.drop("vol-1")
    assert not image.exists()


@needs_loops
def test_it_is_a_loop_device_while_it_is_plugged_in(devices: LoopDevices) -> None:
    devices.make("vol-1", 1)
    device = devices.plug("vol-1", read_only=False)
    [loop] = attached(device.backing_file)
    assert Path(f"/sys/block/{Path(loop).name}/loop/backing_file").read_text().strip() == device.backing_file
    assert devices.plug("vol-1", read_only=False) == device and attached(device.backing_file) == [loop]
    until("nobody to look at it", lambda: devices.unplug("vol-1", pulled=False))
    assert devices.unplug("vol-1", pulled=False)
    assert attached(device.backing_file) == []


@needs_loops
def test_a_mounted_one_stays_until_it_isnt(devices: LoopDevices, tmp_path: Path) -> None:
    devices.make("vol-1", 1)
    [loop] = attached(devices.plug("vol-1", read_only=False).backing_file)
    subprocess.run(["mkfs.ext4", "-q", loop], check=True)
    place = tmp_path / "mnt"
    place.mkdir()
    subprocess.run(["mount", loop, place], check=True)
    try:
        assert not devices.unplug("vol-1", pulled=False)
    finally:
        subprocess.run(["umount", place], check=True)
    until("it to go", lambda: devices.unplug("vol-1", pulled=False))


@needs_loops
def test_a_machine_that_ends_leaves_what_is_on_its_volumes(devices: LoopDevices, tmp_path: Path) -> None:
    """Its folder is deleted, but not through a mount."""
    devices.make("vol-1", 1)
    [loop] = attached(devices.plug("vol-1", read_only=False).backing_file)
    subprocess.run(["mkfs.ext4", "-q", loop], check=True)
    place, mounted = tmp_path / "machines" / "vm-1" / "with blanks", tmp_path / "kept"
    place.mkdir(parents=True)
    mounted.mkdir()
    subprocess.run(["mount", loop, place], check=True)
    (place / "data.txt").write_text("precious")
    LocalLauncher(tmp_path / "machines", "http://127.0.0.1:1", tmp_path / "agent.pyz").kill("vm-1")
    assert not (tmp_path / "machines" / "vm-1").exists()
    subprocess.run(["mount", loop, mounted], check=True)
    try:
        assert (mounted / "data.txt").read_text() == "precious"
    finally:
        subprocess.run(["umount", mounted], check=True)


@needs_loops
def test_what_a_killed_machine_had_mounted_is_unmounted_and_free_for_the_next(
    devices: LoopDevices, tmp_path: Path
) -> None:
    cloud = FakeCloud(lambda: 10_000_000_000, devices=devices)
    offer = next(offer for offer in cloud.offers() if offer.region == "sim-west")
    volume = cloud.create_volume(volume_request("sim-west"))
    wanted = offer.with_(availability_zones=("sim-west-a",))
    first, second = (list(cloud.create(request_for(wanted, name))) for name in ("one", "two"))
    cloud.attach_volume(volume, first)
    [(machine_id, device)] = cloud.describe_volume(volume).attached_to
    assert device is not None
    [loop] = attached(device.backing_file)
    subprocess.run(["mkfs.ext4", "-q", loop], check=True)
    (tmp_path / "mnt").mkdir()
    subprocess.run(["mount", loop, tmp_path / "mnt"], check=True)
    cloud.detach_volume(volume, first)
    assert on(cloud.describe_volume(volume), first)  # it lives, and uses it
    cloud.lose(machine_id)
    until("it to be free", lambda: cloud.describe_volume(volume).attached_to == ())
    assert not (tmp_path / "mnt").is_mount() and attached(device.backing_file) == []
    cloud.attach_volume(volume, second)
    assert on(cloud.describe_volume(volume), second)


@needs_loops
def test_the_cloud_plugs_it_in_for_a_machine_and_again_after_a_restart(devices: LoopDevices, tmp_path: Path) -> None:
    at = [1_000_000_000]

    def cloud() -> FakeCloud:
        stores = [FolderResources(tmp_path / name) for name in ("resources", "volumes")]
        return FakeCloud(lambda: at[0], store=stores[0], volumes=stores[1], devices=devices, facts=FACTS)

    first = cloud()
    offer = next(offer for offer in first.offers() if offer.region == "sim-west")
    volume = first.create_volume(volume_request("sim-west"))
    machine = list(first.create(request_for(offer.with_(availability_zones=("sim-west-a",)))))
    first.attach_volume(volume, machine)
    disk = first.describe_volume(volume)
    [(_, device)] = disk.attached_to
    assert device is not None and len(attached(device.backing_file)) == 1
    devices.unplug(volume.id, pulled=False)  # as when this computer goes down
    again = cloud()
    again.resume()
    assert len(attached(device.backing_file)) == 1
    again.detach_volume(volume, machine)
    assert not on(again.describe_volume(volume), machine)
    assert attached(device.backing_file) == []
    again.delete_volume(volume)
    at[0] += 10_000_000
    assert again.disks.all() == [] and not list((tmp_path / "images").iterdir())


@needs_loops
def test_nothing_can_write_one_that_is_attached_to_be_read(devices: LoopDevices) -> None:
    devices.make("vol-1", 1)
    device = devices.plug("vol-1", read_only=True)
    [loop] = attached(device.backing_file)
    assert device.read_only and Path(f"/sys/block/{Path(loop).name}/ro").read_text() == "1\n"


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has no loop device for us."""
    tools = tmp_path / "tools"
    tools.mkdir()
    script = "#!/bin/sh\ncase $1 in --find) echo 'losetup: no permission' >&2; exit 1;; esac\n"
    (tools / "losetup").write_text(script)
    (tools / "losetup").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")


@pytest.mark.usefixtures("refused")
def test_data_in_a_file_are_never_hidden_by_a_folder(devices: LoopDevices, tmp_path: Path) -> None:
    devices.make("vol-1", 1)
    (tmp_path / "images" / "vol-1.img").write_bytes(b"precious" * 4096)
    with pytest.raises(Unfit, match=r"this computer refuses them: losetup: no permission\. Start the server as root"):
        devices.plug("vol-1", read_only=False)


@pytest.mark.usefixtures("refused")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts folders")
def test_where_there_are_no_loop_devices_a_volume_is_a_folder_and_says_so(
    devices: LoopDevices, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices.make("vol-1", 1)
    device = devices.plug("vol-1", read_only=False)
    folder, place = Path(device.folder), tmp_path / "mnt"
    assert folder == tmp_path / "images" / "vol-1.folder" and device.backing_file == ""
    assert "vol-1 is a folder" in caplog.text and "losetup: no permission" in caplog.text
    (folder / "file").write_text("kept")
    monkeypatch.undo()  # loop devices work again, but its data are in the folder
    assert devices.plug("vol-1", read_only=False) == device
    place.mkdir()
    subprocess.run(["mount", "--bind", folder, place], check=True)
    assert not devices.unplug("vol-1", pulled=False), "a machine still has it"
    assert devices.unplug("vol-1", pulled=True) and not place.is_mount()
    assert (folder / "file").read_text() == "kept"
    devices.drop("vol-1")
    assert not list((tmp_path / "images").iterdir())


def test_without_losetup_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: LoopDevices) -> None:
    devices.make("vol-1", 1)
    (tmp_path / "images" / "vol-1.img").write_bytes(b"precious" * 4096)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unfit, match="need loop devices, and losetup failed"):
        devices.plug("vol-1", read_only=False)
    monkeypatch.undo()
