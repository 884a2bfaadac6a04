"""A gateway as a door of the suite: nginx in a folder of its own, on a free port, told by the agent's own code."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from chalicelib.agent.gateway import entries
from chalicelib.agent.gateway.buckets import Buckets
from chalicelib.agent.gateway.control import Control
from chalicelib.agent.gateway.nginx import MODULES, Listens, Nginx
from chalicelib.agent.gateway.worker_requests import TokenVerdict, WorkerRequests
from chalicelib.domain.services import Traffic
from chalicelib.domain.serving import Served
from tests.harness.ports import free_port
from tests.serving.door import resident

PACKAGES = ("nginx", "libnginx-mod-http-lua", "lua-cjson")
DOMAIN = "example.test"
HOLD = 600.0  # seconds: longer than any test; half a minute outside tests


def installed() -> None:
    """nginx and its Lua module, from apt unless they are there; without the nginx that Debian would start then."""
    if shutil.which("nginx", path="/usr/sbin:/usr/bin") and Path(MODULES, "ngx_http_lua_module.so").exists():
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "-o", "DPkg::Lock::Timeout=300", *PACKAGES],
    ):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-1000:]}"


class NginxDoor:
    def __init__(self, folder: Path, workers: str = "1", tls: bool = False, host: str = "127.0.0.1") -> None:
        """With one worker, what a request leaves behind is done before the next one comes."""
        self.address, self.secure = (host, free_port()), (host, free_port())
        self.tokens: dict[str, tuple[str, ...]] = {}
        self.calls: list[tuple[str, str, str]] = []  # whether this token is good for this project's service
        self.woken: list[str] = []
        self.ends_in: float | None = None  # seconds, whosoever's token it is
        self.away = False  # the control plane can't be asked
        self.hold = HOLD
        self._configuration: dict[str, Any] = {}
        self._entries: dict[str, str] = {}
        self._buckets = Buckets()
        user = "root" if os.geteuid() == 0 else ""
        https = [f"{host}:{self.secure[1]}"] if tls else []
        listens = Listens([f"{host}:{self.address[1]}"], https)
        self.nginx = Nginx(str(folder), listens, workers, user)
        self.worker_requests = WorkerRequests(self.nginx.worker_socket, self._rights, self.woken.append, print)
        self.nginx.start()
        self.worker_requests.start()
        self.control = Control(self.nginx.control)

    def stop(self) -> None:
        self.control.close()
        self.nginx.stop()
        self.worker_requests.stop()

    def empty(self) -> None:
        self.tokens.clear()
        self.calls.clear()
        self.woken.clear()
        self.ends_in, self.away, self.hold = None, False, HOLD
        self.serve()
        self.control.forget()

    # --- what the suite asks for ----------------------------------------------------------------------------------

    def serve(self, *services: Served, **more: Any) -> None:
        models = {f"models-of-{each.project_name}.{DOMAIN}": each.project_id for each in services}
        self.configure({"services": [self._entry(each) for each in services], "model_hosts": models, **more})

    def configure(self, configuration: dict[str, Any]) -> None:
        self._configuration = configuration
        wanted = entries.entries(configuration, self.nginx.relays)
        runs = [each["run_id"] for each in configuration["services"]]
        self._buckets.set_services(runs, self.control.counts(runs, [])["runs"])
        self.control.set(entries.difference(self._entries, self._entries, wanted))
        self._entries = wanted
        self._sample()

    def allow(self, token: str, *projects: str) -> None:
        self.tokens[token] = projects
        self.control.forget()

    def host_of(self, service: Served) -> str:
        return f"{service.run_name}.{DOMAIN}"

    def models_of(self, project: str) -> tuple[str, str]:
        return f"models-of-{project}.{DOMAIN}", "/"

    def traffic(self, service: Served) -> Traffic | None:
        now = self._sample()
        return Traffic(door="gateway", **self._buckets.report(service.run_id, now))

    def memory(self) -> int:
        return resident(*self.nginx.pids())

    # --- what the control plane does otherwise --------------------------------------------------------------------

    def _entry(self, service: Served) -> dict[str, Any]:
        return {**service.model_dump(mode="json"), "hosts": [self.host_of(service)], "hold": self.hold}

    def _rights(self, token: str, project: str, run: str) -> TokenVerdict:
        self.calls.append((token, project, run))
        if self.away:
            return TokenVerdict(503)
        known = project in [f"id-of-{name}" for name in self.tokens.get(token, ())]
        return TokenVerdict(200, self.ends_in) if known else TokenVerdict(403)

    def _sample(self) -> int:
        now = time.time_ns() // 1000
        draining = entries.draining(self._configuration)
        jobs = [job for each in draining.values() for job in each]
        counts = self.control.counts([each["run_id"] for each in self._configuration["services"]], jobs)
        self._buckets.sample(counts, draining, now)
        return now
