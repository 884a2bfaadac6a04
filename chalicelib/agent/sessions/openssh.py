"""The OpenSSH programs that serve a job's sessions: those of the machine, or of a carrier (`kernel/interpreter`).

If the machine is a container, its image rarely has an SSH server, and often doesn't list the user that the agent runs
as, or has that account locked. So there the carrier's programs are preferred. They are started through the carrier's
loader and get lists of users of their own (nss_wrapper), for which nothing needs to be mounted. If the image has both a
Python and no SSH server, no carrier came with the agent, so it is fetched (`carrier_fetching`).

root's sshd shuts the part that reads from strangers in a folder, as another user, and keeps records of logins. Not
every container's root has the rights for that, or a disk to write to. So the carrier's sshd is made to believe that it
runs as an ordinary user (uid_wrapper), of whom it expects neither; it still forbids that part nearly all system calls.
The session gets root's own rights.

sshd starts the user's shell for every session, with the session's command as its argument. An image without a shell
gets a small program as that shell: it starts the command, which can still serve files.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from typing import Dict, List

from ..kernel import interpreter
from ..kernel.tasks import write_atomic

PLACES = "/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/usr/local/bin:/bin"
PRIVSEP_FOLDER = "/run/sshd"
PRIVSEP_USER = "sshd"
ORDINARY = 65533  # the user that sshd believes to be
SHELL = "/bin/sh"
SSHD, KEYGEN = "bin/sshd", "bin/ssh-keygen"  # paths in a carrier
LISTS_WRAPPER, USER_WRAPPER = "lib/libnss_wrapper.so", "lib/libuid_wrapper.so"
STAND_IN = """\
#!%s %s
import os
os.environ.pop("LD_LIBRARY_PATH")
os.execv(%r, %r)
"""


class NoServer(Exception):
    """This machine can't serve sessions. The message is for the job's user."""


class OpenSsh:
    """The programs, and how sshd gets its lists of users."""

    def __init__(self, folder: str, carrier: str = "", owner: str = "host") -> None:
        """`folder`: where the server's files are. `carrier`: the carrier's folder; empty for the machine's programs.
        Raises NoServer."""
        self._folder, self.carrier = folder, carrier
        self._sshd = "" if carrier else program("sshd", owner)
        self._ordinary = bool(carrier) and os.getuid() == 0

    def keygen(self) -> List[str]:
        """The command, without its options."""
        return self._loading(KEYGEN) if self.carrier else [program("ssh-keygen")]

    def sshd(self) -> List[str]:
        return self._loading(SSHD) if self.carrier else [self._sshd]

    def _loading(self, name: str) -> List[str]:
        # The process has the name of its loader, and whether it is an sshd must show in that.
        loader, library = os.path.join(self._folder, "sshd"), interpreter.loading(self.carrier)[1:]
        if not os.path.islink(loader):
            os.symlink(os.path.join(self.carrier, interpreter.LOADER), loader)
        wrappers = (LISTS_WRAPPER, USER_WRAPPER) if self._ordinary else (LISTS_WRAPPER,)
        preloaded = ":".join(os.path.join(self.carrier, each) for each in wrappers)
        return [loader, *library, "--preload", preloaded, os.path.join(self.carrier, name)]

    def environment(self) -> Dict[str, str]:
        """Of both programs; sessions get nothing of it."""
        if not self.carrier:
            return {"PATH": PLACES}
        names = ("passwd", "group", "shadow")
        variables = {"NSS_WRAPPER_" + name.upper(): os.path.join(self._folder, name) for name in names}
        if self._ordinary:
            ids = ("RUID", "EUID", "SUID", "RGID", "EGID", "SGID")
            variables.update(("UID_WRAPPER_INITIAL_" + name, str(ORDINARY)) for name in ids)
            variables.update(UID_WRAPPER="1", UID_WRAPPER_INITIAL_GROUPS_COUNT="0")
        return dict(variables, PATH=PLACES)

    def session_variables(self) -> str:
        """What the sessions' commands are started with, for sshd's configuration."""
        library = ' "LD_LIBRARY_PATH=%s"' % os.path.join(self.carrier, "lib") if self._without_shell else ""
        return "LC_ALL=C.UTF-8" + library

    @property
    def _without_shell(self) -> bool:
        return bool(self.carrier) and not os.access(SHELL, os.X_OK)

    def write_lists(self, user: str, command: List[str]) -> None:
        """Write sshd's lists of users, for the user who logs in and to run `command`."""
        shell = SHELL
        if self._without_shell:
            shell = os.path.join(self._folder, "shell")
            python = os.path.join(self.carrier, "bin/python3")
            loader = os.path.join(self.carrier, interpreter.LOADER)
            write_atomic(shell, STAND_IN % (loader, python, command[0], command), 0o755)
        uid, gid = (ORDINARY, ORDINARY) if self._ordinary else (os.getuid(), os.getgid())
        ids = ["%s:*:%d:%d::/:%s" % (user, uid, gid, shell)]
        if not self.carrier:
            with contextlib.suppress(KeyError):  # some builds of sshd need no such user; one that does reports it
                own = pwd.getpwnam(PRIVSEP_USER)
                ids.append("%s:*:%d:%d::%s:/usr/sbin/nologin" % (PRIVSEP_USER, own.pw_uid, own.pw_gid, PRIVSEP_FOLDER))
            os.makedirs(PRIVSEP_FOLDER, mode=0o755, exist_ok=True)
        self._write("passwd", 0o644, *ids)
        self._write("shadow", 0o600, "%s:*:::::::" % user)  # not locked, and without a password
        self._write("group", 0o644, "tty:x:5:")  # the usual owner of terminals

    def _write(self, name: str, mode: int, *lines: str) -> None:
        write_atomic(os.path.join(self._folder, name), "".join(line + "\n" for line in lines), mode)


def program(name: str, owner: str = "host") -> str:
    """The absolute path of a program, which sshd requires of itself. Raises NoServer."""
    found = shutil.which(name, path=PLACES)
    if not found:
        raise NoServer(
            "attaching isn't possible: this %s has no %s; install its OpenSSH server, for example with "
            "`apt-get install openssh-server`" % (owner, name)
        )
    return found


def installed() -> bool:
    """Does the machine have a server of its own?"""
    return all(shutil.which(name, path=PLACES) for name in ("sshd", "ssh-keygen"))


def complete(carrier: str) -> bool:
    """Does this carrier have these programs? Those of earlier versions don't."""
    return bool(carrier) and all(os.path.exists(os.path.join(carrier, each)) for each in (SSHD, USER_WRAPPER))
