"""nginx and its Lua module, from Debian's packages.

Debian starts nginx with a default page on port 80 as soon as it is installed, and at every boot. That must not happen
where the agent installs it, because port 80 is the gateway's. An nginx that was installed before isn't touched; if it
has the gateway's port, nginx reports that when the gateway starts.

A mark file exists from before the first step until after the last, so that an interrupted installation is repeated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Callable, Dict, List, Optional, Tuple

from ..kernel.tasks import write_atomic
from .nginx import MODULES

NAMES = ["nginx", "libnginx-mod-http-lua", "lua-cjson", "openssl"]
LUA = "ngx_http_lua_module.so"
PATHS = ":/usr/sbin:/usr/local/sbin"
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # without systemd, the second keeps nginx from starting
UNIT = "nginx.service"
PATIENCE = 900.0  # seconds that one command may take: another installation may have to end first

Run = Callable[[List[str], Dict[str, str]], Tuple[int, str]]


class InstallError(Exception):
    """nginx can't be installed; the message says why, and what to do."""


def run(command: List[str], more: Dict[str, str]) -> Tuple[int, str]:
    """The command's exit status and output."""
    try:
        ended = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, **more),
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return 124, "it took more than %d minutes" % (PATIENCE / 60)
    except OSError as problem:
        return 127, str(problem)
    return ended.returncode, ended.stdout.decode("utf-8", "replace")


class Packages:
    def __init__(
        self, mark: str, run: Run = run, modules: str = MODULES, systemd: str = "/run/systemd/system", root: bool = True
    ) -> None:
        """`root`: may this process install packages?"""
        self._mark, self._run, self._modules, self._systemd, self._root = mark, run, modules, systemd, root

    def missing(self) -> bool:
        """Is there anything to install, or an installation to complete?"""
        return not self._installed() or os.path.exists(self._mark)

    def install(self) -> None:
        """Raises InstallError."""
        by_hand = "install %s here, then the gateway starts by itself" % ", ".join(NAMES)
        if shutil.which("apt-get") is None:
            raise InstallError("a gateway needs nginx with its Lua module, and this host has no apt-get: " + by_hand)
        if not self._root:
            text = "a gateway needs nginx with its Lua module, and this agent doesn't run as root: "
            raise InstallError(text + "run `sudo apt-get install %s` on the host" % " ".join(NAMES))
        if not os.path.exists(self._mark) and _nginx() is None:
            write_atomic(self._mark, "ours\n", durable=True)
        marked, controlled = os.path.exists(self._mark), os.path.isdir(self._systemd)
        if marked and controlled:
            self._run(["systemctl", "mask", "--runtime", "--quiet", UNIT], {})
        try:
            self._apt()
        finally:
            if marked and controlled:
                self._run(["systemctl", "unmask", "--runtime", "--quiet", UNIT], {})
        if marked and controlled:
            status, output = self._run(["systemctl", "disable", "--now", "--quiet", UNIT], {})
            if status:
                raise InstallError("Debian's own nginx can't be disabled: " + _last_lines(output))
        if marked:
            os.unlink(self._mark)

    def _apt(self) -> None:
        status, updated = self._run(["apt-get", "update", "-qq"], QUIET)
        patient = ["-o", "DPkg::Lock::Timeout=300"]  # a new machine may be running another installation
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *patient, *NAMES]
        failed, installed = self._run(command, QUIET)
        if failed:
            before, after = _last_lines(updated), _last_lines(installed)
            because = "%s; %s" % (before, after) if status else after or before
            raise InstallError("`apt-get install %s` fails: %s" % (" ".join(NAMES), because))

    def _installed(self) -> bool:
        return _nginx() is not None and os.path.exists(os.path.join(self._modules, LUA))


def _nginx() -> Optional[str]:
    return shutil.which("nginx", path=os.environ.get("PATH", "") + PATHS)


def _last_lines(output: str) -> str:
    """The last three lines that aren't blank."""
    return "; ".join([line.strip() for line in output.splitlines() if line.strip()][-3:])[-600:]
