"""The isolation of jobs on a machine, and the users as which they may run there.

In a container, `user` is a user of the image. A plain process runs as an account of its host, with everything that this
account has there: keys, files, ways to become root. So `user` needs a permission there, and isn't available to jobs of
other projects. The agent checks it again, with the host's own lists of users and groups.
"""

from __future__ import annotations

from chalicelib.domain.instances import CONTAINED, Instance
from chalicelib.domain.job_specs import UnixUser
from chalicelib.planning.matching.fitting import Misfit

FIRST_ACCOUNT, LAST_ACCOUNT = 1000, (1 << 31) - 1  # other ids are the system's own
NOBODIES = (65534, 65535)  # as are these
SYSTEM_NAMES = ("root", "nobody")

UNISOLATED = Misfit(
    "runs jobs as plain processes of its agent's user, which only the project's admins may use",
    "install a container engine there, run the server or the agent as root, or start the server with --trust-jobs",
)
NOT_PERMITTED = Misfit(
    "runs plain processes, and only the project's admins may name the host's users in `user`",
    "remove `user`, install a container engine there, or ask the server's operator for "
    "`allow_non_admins_run_privileged`",
)
SYSTEMS_OWN = Misfit(
    "runs plain processes, which can't be root or another of the host's system users",
    "remove `user`, or install a container engine there",
)


def without_docker(instance: Instance) -> bool:
    return bool(instance.runtimes) and CONTAINED.isdisjoint(instance.runtimes)


def unisolated(instance: Instance) -> bool:
    """Do jobs there run as the agent's own user?"""
    return without_docker(instance) and instance.isolation != "user"


def barred(user: UnixUser | None, permitted: bool) -> Misfit | None:
    """Why a job with this `user` can't be a plain process; None if it can. `permitted`: its user may name users of
    hosts."""
    if user is None:
        return None
    if not permitted:
        return NOT_PERMITTED
    ids = [number for number in (user.uid, user.gid) if number is not None]
    named = user.username in SYSTEM_NAMES or user.groupname == "root"
    return SYSTEMS_OWN if named or any(map(_systems_own, ids)) else None


def _systems_own(number: int) -> bool:
    return number in NOBODIES or not FIRST_ACCOUNT <= number <= LAST_ACCOUNT


def text_of(user: UnixUser) -> str:
    """The `user` field as it was written."""
    parts = (
        user.uid if user.username is None else user.username,
        user.gid if user.groupname is None else user.groupname,
    )
    return ":".join(str(part) for part in parts if part is not None)
