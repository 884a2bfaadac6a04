"""The simulated cloud's volumes on this computer: each is a sparse file, and a loop device while it is attached.

Without loop devices, a volume becomes a folder with its first machine, and is bind-mounted; its record, the log and the
list of volumes say so. A volume never changes from one to the other.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from pathlib import Path

from chalicelib.backends.simulated.mounts import Mount, mounts, unmount
from chalicelib.domain.volumes import Device
from chalicelib.errors import Unfit
from chalicelib.printable import printable

log = logging.getLogger(__name__)

GIB = 1024**3
PATIENCE = 20.0  # seconds for one call of losetup


class LoopDevices:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()  # as the kernel names the file behind a loop device

    def make(self, volume_id: str, size_gib: int) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        image = self._image(volume_id)
        if not image.exists():
            draft = image.with_suffix(".draft")
            with draft.open("wb") as file:
                file.truncate(size_gib * GIB)
            draft.chmod(0o600)
            draft.replace(image)

    def plug(self, volume_id: str, *, read_only: bool) -> Device:
        image, instead = self._image(volume_id), self._instead(volume_id)
        if not instead.exists():
            try:
                if not self._loops(image):
                    _losetup("--find", *(("--read-only",) if read_only else ()), str(image))
                return Device(backing_file=str(image), read_only=read_only)
            except Unfit as refused:
                if os.geteuid() != 0 or image.stat().st_blocks:  # nobody could mount it, or its data are in the file
                    raise
                log.warning("volume %s is a folder, %s: %s", volume_id, instead, refused)
                instead.mkdir()
                instead.chmod(0o777)  # for whichever user a job has; the folder above is closed to them
        return Device(folder=str(instead))

    def unplug(self, volume_id: str, *, pulled: bool) -> bool:
        """Detaches the loop device. The kernel removes a device that is still mounted once it is unmounted. Mounts of a
        killed machine are unmounted here."""
        image, instead = self._image(volume_id), self._instead(volume_id)
        if instead.exists():
            left = [place for place in _bound(instead) if not (pulled and unmount(place))]
            return not left
        loops = self._loops(image)
        for place in mounts() if pulled else ():
            if place.source in loops:
                unmount(place)
        for loop in self._loops(image):
            try:
                _losetup("--detach", loop)
            except Unfit:
                if loop in self._loops(image):  # else it went by itself meanwhile
                    raise
        return not self._loops(image)

    def drop(self, volume_id: str) -> None:
        self._image(volume_id).unlink(missing_ok=True)
        if (instead := self._instead(volume_id)).exists():
            shutil.rmtree(instead)

    def _image(self, volume_id: str) -> Path:
        return self._folder / f"{volume_id}.img"

    def _instead(self, volume_id: str) -> Path:
        return self._folder / f"{volume_id}.folder"

    def _loops(self, image: Path) -> list[str]:
        if not image.exists():
            return []
        found = _losetup("--associated", str(image), "--output", "NAME", "--noheadings")
        return found.split()


def _bound(folder: Path) -> list[Mount]:
    """The paths where it is mounted."""
    found = []
    for place in mounts():
        try:
            if Path(place.path).samefile(folder):
                found.append(place)
        except OSError:
            continue  # hidden below another mount, or just unmounted
    return found


def _losetup(*arguments: str) -> str:
    try:
        done = subprocess.run(["losetup", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unfit(f"Volumes of the simulated cloud need loop devices, and losetup failed: {error}.") from error
    if done.returncode:
        reason = printable(done.stderr.strip().rpartition("\n")[2]) or f"it exited with {done.returncode}"
        raise Unfit(
            f"Volumes of the simulated cloud need loop devices, and this computer refuses them: {reason}.",
            hint="Start the server as root, outside a container that has no /dev/loop-control.",
        )
    return done.stdout
