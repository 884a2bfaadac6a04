"""A name for a container's user whom the image doesn't list.

The engine runs any number. But without an entry ssh runs for nobody, Python's getpwuid and getpass fail, and `HOME` is
`/`. So lists of users and groups with an entry are put into the container before it starts, and a home of its own.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from typing import Any, Dict

from .accounts import name_of
from .docker_client import DockerClient
from .docker_repositories import LIST_MOST, Put, add_home, file_of, listed, owner_of
from .name_service import GROUPS, USERS, user_entry, with_entry


def give_name(docker: DockerClient, put: Put, name: str, user: str, home: str, shell: str) -> None:
    """`user` as the engine is told it: whom it names, the image must list, or the engine refuses it."""
    number = user.partition(":")[0]
    if not number.isdecimal() or not int(number) or listed(docker, name, USERS, number):
        return
    uid, gid = owner_of(docker, name, user)
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            _add(docker, name, tar, USERS, user_entry(name_of(uid), uid, gid, home, shell))
            if gid and not listed(docker, name, GROUPS, str(gid)):
                _add(docker, name, tar, GROUPS, "%s:x:%d:" % (name_of(uid), gid))
        put(packed)
    add_home(docker, put, name, home, user)


def _add(docker: DockerClient, name: str, tar: tarfile.TarFile, path: str, entry: str) -> None:
    """A link, or a list that is too long for us, stays as it is."""
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


def home_of_user(spec: Dict[str, Any], image: Dict[str, Any], user: str) -> str:
    """Where the container's processes are at home: what the job says of it, or its image, or a folder by its number."""
    known = dict(item.partition("=")[::2] for item in (image.get("Config") or {}).get("Env") or ())
    said = (spec.get("env") or {}).get("HOME") or spec.get("home_dir") or known.get("HOME")
    return str(said or "/home/" + user.partition(":")[0])
