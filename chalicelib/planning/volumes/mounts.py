"""What a job mounts: folders of its host, and volumes by name. A name may contain the node's rank, so that each node of
a task gets a volume of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.mounts import InstanceMountPoint, MountPoint, VolumeMountPoint
from chalicelib.errors import Problem

if TYPE_CHECKING:
    from chalicelib.contract.agent import TaskFolderMount

_RANK = re.compile(r"(?<!\$)\$\{\{\s*dstack\.(?:node_rank|job_num)\s*\}\}")


def mounts_of(written: Sequence[MountPoint], rank: int) -> tuple[MountPoint, ...]:
    """The mounts of the node with this rank. The names of a volume are always returned as a tuple."""
    return tuple(
        mount.with_(name=tuple(_RANK.sub(str(rank), name) for name in names_of(mount)))
        if isinstance(mount, VolumeMountPoint)
        else mount
        for mount in written
    )


def names_of(mount: VolumeMountPoint) -> tuple[str, ...]:
    return (mount.name,) if isinstance(mount.name, str) else mount.name


def named_volumes(mounts: Sequence[MountPoint]) -> tuple[tuple[str, ...], ...]:
    """The volumes that may be mounted, by mount point."""
    return tuple([names_of(mount) for mount in mounts if isinstance(mount, VolumeMountPoint)])


def may_differ(written: Sequence[MountPoint]) -> bool:
    """May the nodes of a task mount different volumes? So they may if a mount names several of them."""
    mounts = (mount for mount in written if isinstance(mount, VolumeMountPoint))
    return any(len(names_of(mount)) > 1 or _RANK.search(names_of(mount)[0]) for mount in mounts)


def may_mount(written: Sequence[MountPoint], name: str) -> bool:
    """Does a run, with any of its nodes, name this volume?"""
    named = (each for names in named_volumes(written) for each in names)
    return any(re.fullmatch(r"\d+".join(map(re.escape, _RANK.split(each))), name) for each in named)


def needs_host(mounts: Sequence[MountPoint]) -> bool:
    """Must its machine be a host, with folders of its own?"""
    return any(isinstance(mount, InstanceMountPoint) and not mount.optional for mount in mounts)


def has_folders(offer: Offer) -> bool:
    return not offer.is_container


def folder(mount: InstanceMountPoint) -> TaskFolderMount:
    """A host's folder in the agent protocol."""
    return {"kind": "folder", "source": mount.instance_path, "path": mount.path}


def wrong_mounts(written: Sequence[MountPoint]) -> Iterator[Problem]:
    """Paths that can't be mounted over."""
    seen: set[str] = set()
    for at, mount in enumerate(written):
        where = f"configuration.volumes.{at}"
        if mount.path in seen:
            text, hint = f"something else is mounted at `{mount.path}` already", "choose another path"
            yield Problem(text, path=f"{where}.path", hint=hint, code="duplicate")
        elif mount.path == "/":
            text, hint = "nothing can be mounted over the whole file system of a job", "for example `/data`"
            yield Problem(text, path=f"{where}.path", hint=hint, code="invalid-path")
        seen.add(mount.path)


def first_folder(written: Sequence[MountPoint]) -> str:
    """The path of the first field that mounts a folder of the host; empty if there is none."""
    found = (at for at, mount in enumerate(written) if isinstance(mount, InstanceMountPoint))
    return next((f"configuration.volumes.{at}" for at in found), "")
