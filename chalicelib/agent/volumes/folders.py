"""Folders that people name, opened without following anybody's links.

Root opens them on a machine where jobs may write: whoever owns a folder on the way could put a link there, and so
choose what root mounts or creates. So no link is followed, not even a harmless one; the error asks for the folder that
it leads to. And every step starts from the folder that the last one opened, so nothing can be swapped in between.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Callable, Dict, Iterable, List, Optional

from .signatures import UnusableDisk

# The machine itself; jobs have no business there, nor below.
SYSTEM = ("/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
LOOK = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
UNFINISHED = 0  # the mode of a folder that doesn't belong to its user yet

Make = Callable[[str, int, bool], None]  # name, in which open folder, whether it's the last on the way


def refuse(path: str, private: Dict[str, str]) -> None:
    """`private`: folders that are nobody else's, and whose. Raises UnusableDisk."""
    if not path.startswith("/") or "\0" in path:
        raise UnusableDisk("it isn't an absolute path")
    if ".." in path.split("/"):
        raise UnusableDisk("`..` isn't followed; write the path without it")
    plain = os.path.normpath("/" + path.strip("/"))
    if plain == "/":
        raise UnusableDisk("the root of the machine can't be a volume; name a folder")
    for place in SYSTEM:
        if _within(plain, place):
            raise UnusableDisk("%s belongs to the machine's system; choose another folder" % place)
    for place, whose in private.items():
        if _within(plain, place) or _within(place, plain):
            raise UnusableDisk("%s is %s; choose a folder beside it" % (place, whose))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def opened(path: str, make: Optional[Make] = None) -> int:
    """The folder, open only to be mounted or examined. Raises UnusableDisk, and what `make` raises."""
    here, so_far = os.open("/", LOOK), ""
    try:
        names = [part for part in path.split("/") if part not in ("", ".")]
        for number, name in enumerate(names):
            so_far += "/" + name
            try:
                there = os.open(name, LOOK, dir_fd=here)
            except FileNotFoundError:
                if make is None:
                    raise UnusableDisk("there is no folder %s on this machine" % so_far) from None
                make(name, here, number == len(names) - 1)
                there = os.open(name, LOOK, dir_fd=here)
            except OSError as problem:
                raise _unopened(name, here, so_far, problem) from None
            os.close(here)
            here = there
    except BaseException:
        os.close(here)
        raise
    return here


def _unopened(name: str, here: int, so_far: str, problem: OSError) -> Exception:
    if problem.errno not in (errno.ENOTDIR, errno.ELOOP):
        return UnusableDisk("%s: %s" % (so_far, os.strerror(problem.errno or 0)))
    try:
        link = os.readlink(name, dir_fd=here)
    except OSError:
        return UnusableDisk("%s isn't a folder" % so_far)
    return UnusableDisk("%s is a link to %s, and links aren't followed; name the folder itself" % (so_far, link))


def maker(mode: int) -> Make:
    """Makes the last folder with this mode, those above for everybody to enter; all of them are the caller's."""

    def make(name: str, here: int, last: bool) -> None:
        mask = os.umask(0)
        try:
            os.mkdir(name, mode if last else 0o755, dir_fd=here)
        finally:
            os.umask(mask)

    return make


def missing(path: str) -> List[str]:
    """Those of its folders that aren't there yet, from above."""
    return [place for place in above(path) if not os.path.lexists(place)]


def above(path: str) -> List[str]:
    """A folder and all above it, from the top."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    return ["/" + "/".join(names[: number + 1]) for number in range(len(names))]


def remove(paths: Iterable[str]) -> None:
    """Those that are empty; the others somebody uses by now."""
    for path in paths:
        try:
            parent = opened(os.path.dirname(path))
        except (UnusableDisk, OSError):
            continue  # gone
        try:
            os.rmdir(os.path.basename(path), dir_fd=parent)
        except OSError:
            continue  # gone, or in use
        finally:
            os.close(parent)


def unfinished(folder: int) -> bool:
    """Made by us and not given to anybody yet."""
    found = os.fstat(folder)
    return stat.S_IMODE(found.st_mode) == UNFINISHED and found.st_uid == os.geteuid()


def give(folder: int, uid: int, gid: int, mode: int = 0o755) -> None:
    """Its mode comes last: until then it is unfinished, and whoever comes next gives it away."""
    path = "/proc/self/fd/%d" % folder  # a descriptor that is only to look can't be changed itself
    if os.geteuid() == 0:
        os.chown(path, uid, gid)
    os.chmod(path, mode)
