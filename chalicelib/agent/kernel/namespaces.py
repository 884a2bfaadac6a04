"""Kernel namespaces, entered and created through libc: Python has no calls for them before 3.12."""

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
STATVFS_FLAGS = MS_RDONLY | MS_NOSUID | MS_NODEV | 0xC08  # a mount's flags in statvfs; also noexec, no(dir)atime
MNT_DETACH, UMOUNT_NOFOLLOW = 0x2, 0x8
VOLUMES = "/run/dstack-volumes"  # the jobs' disks are mounted here, for root only
PR_SET_PDEATHSIG = 1
CAPABILITY_VERSION = 0x20080522


@functools.lru_cache(maxsize=None)
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def enter(pid: int, kinds: Iterable[str]) -> None:
    """Enter another process's namespaces of these kinds (`user`, `mnt`, `net`), in this order, unless this process is
    in them already. Raises OSError."""
    enter_open(open_namespaces(pid, kinds))


def open_namespaces(pid: int, kinds: Iterable[str]) -> Dict[str, int]:
    """Descriptors of a process's namespaces by kind, in this order. They stay valid when the process ends."""
    return {kind: os.open("/proc/%d/ns/%s" % (pid, kind), os.O_RDONLY | os.O_CLOEXEC) for kind in kinds}


def is_current(namespace: int, kind: str) -> bool:
    return os.path.samestat(os.fstat(namespace), os.stat("/proc/self/ns/" + kind))


def enter_open(namespaces: Dict[str, int]) -> None:
    foreign = {kind: namespace for kind, namespace in namespaces.items() if not is_current(namespace, kind)}
    for kind, namespace in foreign.items():
        _check(_libc().setns(namespace, 0), "entering a job's %s namespace" % kind)
    for namespace in namespaces.values():
        os.close(namespace)


def bind_over(files: Dict[str, str]) -> None:
    """Mount these files over others, `{place: file}`, for this process and its children only. The jobs' disks are
    detached, so that they don't stay in use here when the machine unmounts them. Raises OSError."""
    unshare_mounts()
    detach_volumes()
    for place, file in files.items():
        mount(file, place, MS_BIND)


def unshare_mounts() -> None:
    """Move this process to a mount namespace of its own, whose mounts no other process sees. Raises OSError."""
    _check(_libc().unshare(CLONE_NEWNS), "making a mount namespace")
    mount("none", "/", MS_REC | MS_SLAVE)


def detach_volumes() -> None:
    """Unmount the jobs' disks in a mount namespace of this process's own: a copy would keep a disk in use."""
    for mounted in reversed(mountinfo.mounts()):
        if (mounted.place + "/").startswith(VOLUMES + "/"):
            unmount(mounted.place, MNT_DETACH)


@functools.lru_cache(maxsize=None)
def bind_over_problem() -> str:
    """Why `bind_over` fails on this machine; empty if it works. Tried once, in a child process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            bind_over({})
        except OSError as problem:
            os.write(writer, str(problem).encode("utf-8"))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        error = pipe.read()
    os.waitpid(pid, 0)
    return error


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    outcome = _libc().mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _check(outcome, "mounting %s on %s" % (source, target))


def restrict(target: str, flags: int) -> None:
    """Add flags to those of the mount at `target`."""
    present = os.statvfs(target).f_flag & STATVFS_FLAGS
    mount("none", target, MS_REMOUNT | MS_BIND | present | flags)


def unmount(target: str, flags: int = 0) -> None:
    _check(_libc().umount2(os.fsencode(target), flags | UMOUNT_NOFOLLOW), "unmounting %s" % target)


def flush(folder: int) -> None:
    """Write the kernel's buffers for the filesystem of this open folder to its disk. Raises OSError."""
    _check(_libc().syncfs(folder), "writing to the disk")


def limit_capabilities(mask: int) -> None:
    """Give up all of this process's capabilities but those in the bit mask. Raises OSError."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)  # effective, permitted, inheritable; twice
    _check(_libc().capset(header, data), "giving up capabilities")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _check(_libc().prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL)), "asking to end with the parent")


def _check(outcome: int, step: str) -> None:
    if outcome:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (step, os.strerror(number)))
