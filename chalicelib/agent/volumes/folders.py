"""Opening of folders that users name, without following links.

Root opens them on a machine where jobs may write: the owner of a folder on the path could put a link there, and so
choose what root mounts or creates. So no link is followed, not even a harmless one; the error names its target. And
every step starts from the folder that the last one opened, so that nothing can be replaced in between.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Callable, Dict, Iterable, List, Optional

from .signatures import UnusableDisk

# The machine's system, which no volume may be in.
SYSTEM = ("/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
UNFINISHED = 0  # the mode of a folder that hasn't been given to its user yet

Make = Callable[[str, int, bool], None]  # name, the open parent, whether it is the last of the path


def refuse(path: str, private: Dict[str, str]) -> None:
    """Raise UnusableDisk for a path that can't be a volume. `private`: further folders, with their purposes."""
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
    for place, purpose in private.items():
        if _within(plain, place) or _within(place, plain):
            raise UnusableDisk("%s is %s; choose a folder beside it" % (place, purpose))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def open_folder(path: str, make: Optional[Make] = None) -> int:
    """Open a folder to mount or examine it; `make` creates missing ones. Raises UnusableDisk and `make`'s errors."""
    parent, so_far = os.open("/", FLAGS), ""
    try:
        names = [part for part in path.split("/") if part not in ("", ".")]
        for number, name in enumerate(names):
            so_far += "/" + name
            try:
                child = os.open(name, FLAGS, dir_fd=parent)
            except FileNotFoundError:
                if make is None:
                    raise UnusableDisk("there is no folder %s on this machine" % so_far) from None
                make(name, parent, number == len(names) - 1)
                child = os.open(name, FLAGS, dir_fd=parent)
            except OSError as problem:
                raise _open_error(name, parent, so_far, problem) from None
            os.close(parent)
            parent = child
    except BaseException:
        os.close(parent)
        raise
    return parent


def _open_error(name: str, parent: int, so_far: str, problem: OSError) -> Exception:
    if problem.errno not in (errno.ENOTDIR, errno.ELOOP):
        return UnusableDisk("%s: %s" % (so_far, os.strerror(problem.errno or 0)))
    try:
        link = os.readlink(name, dir_fd=parent)
    except OSError:
        return UnusableDisk("%s isn't a folder" % so_far)
    return UnusableDisk("%s is a link to %s, and links aren't followed; name the folder itself" % (so_far, link))


def maker(mode: int) -> Make:
    """A `Make` that creates the last folder with this mode, and those above with 0755. The caller owns all of them."""

    def make(name: str, parent: int, last: bool) -> None:
        mask = os.umask(0)
        try:
            os.mkdir(name, mode if last else 0o755, dir_fd=parent)
        finally:
            os.umask(mask)

    return make


def missing(path: str) -> List[str]:
    """A path's folders that don't exist yet, from the top."""
    return [place for place in above(path) if not os.path.lexists(place)]


def above(path: str) -> List[str]:
    """A folder and all above it, from the top."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    return ["/" + "/".join(names[: number + 1]) for number in range(len(names))]


def remove(paths: Iterable[str]) -> None:
    """Delete the folders that are empty; others are in use by now."""
    for path in paths:
        try:
            parent = open_folder(os.path.dirname(path))
        except (UnusableDisk, OSError):
            continue  # gone
        try:
            os.rmdir(os.path.basename(path), dir_fd=parent)
        except OSError:
            continue  # gone, or in use
        finally:
            os.close(parent)


def unfinished(folder: int) -> bool:
    """Was the folder created by the agent and not given to a user yet?"""
    found = os.fstat(folder)
    return stat.S_IMODE(found.st_mode) == UNFINISHED and found.st_uid == os.geteuid()


def give(folder: int, uid: int, gid: int, mode: int = 0o755) -> None:
    """Give a folder to a user. Its mode is set last: until then it is unfinished, and the next task repeats this."""
    path = "/proc/self/fd/%d" % folder  # because the descriptor has O_PATH
    if os.geteuid() == 0:
        os.chown(path, uid, gid)
    os.chmod(path, mode)
