"""A name for a container's user that the image doesn't list.

The engine accepts any number. But without an entry in the list of users ssh refuses to run, Python's getpwuid and
getpass fail, and `HOME` is `/`. So an entry for the user, one for its group and a home are added to the container
before it starts.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from typing import TYPE_CHECKING, Any, Dict

from .accounts import name_of
from .docker_client import DockerClient
from .docker_repositories import LIST_MOST, Put, add_home, file_of, find_entry, owner_of
from .name_service import GROUPS, USERS, user_entry, with_entry

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask


def give_name(docker: DockerClient, put: Put, name: str, user: str, home: str, shell: str) -> None:
    """Add entries for `user`, in the engine's form. A user given by name is in the image, or the engine refuses it."""
    number = user.partition(":")[0]
    if not number.isdecimal() or not int(number) or find_entry(docker, name, USERS, number):
        return
    uid, gid = owner_of(docker, name, user)
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            _add(docker, name, tar, USERS, user_entry(name_of(uid), uid, gid, home, shell))
            if gid and not find_entry(docker, name, GROUPS, str(gid)):
                _add(docker, name, tar, GROUPS, "%s:x:%d:" % (name_of(uid), gid))
        put(packed)
    add_home(docker, put, name, home, user)


def _add(docker: DockerClient, name: str, tar: tarfile.TarFile, path: str, entry: str) -> None:
    """Add an entry to one of the container's lists, unless that is a link or longer than `LIST_MOST`."""
    member, data = file_of(docker, name, path)
    if member is not None and (not member.isfile() or member.size > LIST_MOST):
        return
    text = with_entry(data.decode("utf-8", "surrogateescape"), entry).encode("utf-8", "surrogateescape")
    found = tarfile.TarInfo(path.strip("/"))
    found.mode = 0o644
    if member is not None:
        found.mode, found.uid, found.gid = member.mode, member.uid, member.gid
    found.size = len(text)
    tar.addfile(found, io.BytesIO(text))


def home_of_user(spec: LaunchedTask, image: Dict[str, Any], user: str) -> str:
    """The container's `HOME`: from the job's spec, else from the image, else a folder named after the user's number."""
    variables = dict(item.partition("=")[::2] for item in (image.get("Config") or {}).get("Env") or ())
    home = (spec.get("env") or {}).get("HOME") or spec.get("home_dir") or variables.get("HOME")
    return str(home or "/home/" + user.partition(":")[0])
