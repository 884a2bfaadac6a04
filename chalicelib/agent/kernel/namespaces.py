"""Namespaces of the kernel, entered or made through libc: Python has no calls for them before 3.12."""

from __future__ import annotations

import functools
import os
import signal
from typing import TYPE_CHECKING, Any, Dict, Iterable

from .lazy import LazyModule

if TYPE_CHECKING:
    import ctypes

    from . import mountinfo
else:
    ctypes = LazyModule("ctypes")
    mountinfo = LazyModule(".kernel.mountinfo")

CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 0x1, 0x2, 0x4, 0x20
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE, MS_SHARED = 0x1000, 0x4000, 0x40000, 0x80000, 0x100000
KEPT = MS_RDONLY | MS_NOSUID | MS_NODEV | 0xC08  # what statvfs tells of a mount: these, noexec, noatime, nodiratime
MNT_DETACH, UMOUNT_NOFOLLOW = 0x2, 0x8
VOLUMES = "/run/dstack-volumes"  # where the disks of jobs are mounted, for root only
PR_SET_PDEATHSIG = 1
CAPABILITY_VERSION = 0x20080522


@functools.lru_cache(maxsize=None)
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def enter(pid: int, kinds: Iterable[str]) -> None:
    """The namespaces of another process (`user`, `mnt`, `net`), in this order, where they aren't ours already. Raises
    OSError."""
    enter_held(held(pid, kinds))


def held(pid: int, kinds: Iterable[str]) -> Dict[str, int]:
    """Those namespaces as open descriptors, by kind, in this order: they stay the same when the process ends."""
    return {kind: os.open("/proc/%d/ns/%s" % (pid, kind), os.O_RDONLY | os.O_CLOEXEC) for kind in kinds}


def ours(namespace: int, kind: str) -> bool:
    return os.path.samestat(os.fstat(namespace), os.stat("/proc/self/ns/" + kind))


def enter_held(theirs: Dict[str, int]) -> None:
    foreign = {kind: namespace for kind, namespace in theirs.items() if not ours(namespace, kind)}
    for kind, namespace in foreign.items():
        _checked(_libc().setns(namespace, 0), "entering a job's %s namespace" % kind)
    for namespace in theirs.values():
        os.close(namespace)


def see_instead(files: Dict[str, str]) -> None:
    """From now on this process and its children find these files in the places of others: `{place: file}`. Nobody else
    does; what the machine unmounts goes here, too, or it would stay in use. Raises OSError."""
    mount_apart()
    leave_volumes()
    for place, file in files.items():
        mount(file, place, MS_BIND)


def mount_apart() -> None:
    """What this process mounts from now on, only it and its children see. Raises OSError."""
    _checked(_libc().unshare(CLONE_NEWNS), "making a mount namespace")
    mount("none", "/", MS_REC | MS_SLAVE)


def leave_volumes() -> None:
    """In a namespace of our own: a copy of a disk's mount would keep the disk in use after its job."""
    for mounted in reversed(mountinfo.mounts()):
        if (mounted.place + "/").startswith(VOLUMES + "/"):
            unmount(mounted.place, MNT_DETACH)


@functools.lru_cache(maxsize=None)
def seeing_instead_fails() -> str:
    """Why a process of ours can't do that; empty if it can. Tried in a child, once."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            see_instead({})
        except OSError as problem:
            os.write(tell, str(problem).encode("utf-8"))
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    done = _libc().mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _checked(done, "mounting %s on %s" % (source, target))


def restrict(target: str, flags: int) -> None:
    """More flags for the mount at `target`, besides those it has."""
    kept = os.statvfs(target).f_flag & KEPT
    mount("none", target, MS_REMOUNT | MS_BIND | kept | flags)


def unmount(target: str, flags: int = 0) -> None:
    _checked(_libc().umount2(os.fsencode(target), flags | UMOUNT_NOFOLLOW), "unmounting %s" % target)


def flush(folder: int) -> None:
    """Write what the kernel still has of the filesystem of this open folder. Raises OSError if it couldn't."""
    _checked(_libc().syncfs(folder), "writing to the disk")


def keep_capabilities(mask: int) -> None:
    """This process keeps only these capabilities, as bits. Raises OSError."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)  # effective, permitted, inheritable; twice
    _checked(_libc().capset(header, data), "giving up capabilities")


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends, however that does."""
    _checked(_libc().prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL)), "asking to end with the parent")


def _checked(outcome: int, step: str) -> None:
    if outcome:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (step, os.strerror(number)))
