"""Machines for the simulated cloud: each is a host of a site, from its launch until it is killed.

The provider outlives the server, as clouds do. It lives in the test's process and listens on a socket in the file
system, where any network namespace finds it. A host that was killed boots anew for the next machine, with nothing of
the last one's agent.
"""

from __future__ import annotations

import json
import os
import socketserver
import stat
import threading
from pathlib import Path
from typing import Any

from tests.e2e.hosts.host import Host
from tests.harness.loops import MAJOR

AGENT = "dstack-agent"
SCRIPT = "/var/lib/cloud/user-data"
DRIVES = 64  # loop devices that a host has nodes of
# As an image of a cloud would start it, and start it again.
STARTED = f"""systemd-run --quiet --unit={AGENT} --property=Restart=always --property=RestartSec=1
    --property=StartLimitIntervalSec=0 --property=KillMode=process --property=UMask=0077 sh {SCRIPT}"""


class Provider:
    def __init__(self, hosts: list[Host], place: Path) -> None:
        self.place = place
        self._hosts = hosts
        self.machines: dict[str, Host] = {}
        self._lock = threading.Lock()
        self._server = _Listener(str(place), _Call)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def launch(self, machine: str, user_data: str) -> None:
        with self._lock:
            if machine in self.machines:
                return
            free = [host for host in self._hosts if host not in self.machines.values()]
            host = free[0]
            if not host.on:
                host.boot()
                host.run("rm", "-rf", "/var/lib/dstack", SCRIPT)
            _show_drives(host)
            host.write(SCRIPT, user_data, 0o600)
            host.run(*STARTED.split())
            self.machines[machine] = host

    def kill(self, machine: str) -> None:
        with self._lock:
            host = self.machines.pop(machine, None)
            if host is not None and host.on:
                host.kill()


class _Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    provider: Provider


class _Call(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        order: dict[str, Any] = json.loads(self.rfile.readline())
        provider: Provider = self.server.provider  # type: ignore[attr-defined]
        error = ""
        try:
            getattr(provider, order.pop("do"))(**order)
        except (AssertionError, IndexError, OSError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        self.wfile.write(json.dumps({"error": error}).encode() + b"\n")


def _show_drives(host: Host) -> None:
    for number in range(DRIVES):
        node = Path(f"/proc/{host.leader}/root/dev/loop{number}")
        if not node.exists():
            os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(MAJOR, number))
