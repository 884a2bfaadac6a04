"""Machines of the simulated cloud as processes: the real agent starts, works, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chalicelib.agent.gateway.role import folder_of
from chalicelib.agent.program.build import write
from chalicelib.backends.simulated.catalog import resources
from chalicelib.backends.simulated.cloud import Boot
from chalicelib.backends.simulated.launch import LocalLauncher
from chalicelib.backends.simulated.local import local_cloud
from chalicelib.domain.boot_script import user_data
from chalicelib.errors import Gone
from tests.backends.conformance import request_for
from tests.harness.ports import free_port
from tests.serving.nginx_door import installed

pytestmark = pytest.mark.slow

PATIENCE = 120.0


class Plane(BaseHTTPRequestHandler):
    """A server that wants every caller to run one task."""

    task: ClassVar[dict[str, Any]] = {}
    gateway: ClassVar[dict[str, Any] | None] = None  # that its machine is to carry
    reports: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reports.append(message)
        tasks = [{"id": "task-1", "want": "run", "spec": self.task}] if self.task else []
        answer = {"seq": message["seq"], "tasks": tasks, "logs": [], "next_sync_in": 1.0}
        if self.gateway is not None:
            answer["gateway"] = self.gateway
        if message["wait"]:
            time.sleep(0.2)  # as a long poll would hang, or the agent would ask without a pause
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    Plane.reports.clear()
    Plane.task, Plane.gateway = {}, None
    http = ThreadingHTTPServer(("127.0.0.1", 0), Plane)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    write(str(path))
    return path


def until(done: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := done():
            return found
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {PATIENCE:.0f} s")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def boot(server: str, machine: str = "vm-1") -> Boot:
    return Boot(
        machine, user_data(server, "instance-1", "token", "0" * 64), resources("sim.l4", spot=False), 0, "10.0.0.1"
    )


def test_ending_a_machine_ends_the_agent_and_all_that_ran_there(server: str, program: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"(setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' &) ; echo $$ >> {pids}; exec sleep 1000"
    Plane.task = {
        "id": "task-1",
        "name": "run-0-0",
        "project": "main",
        "run_name": "run",
        "commands": ["/bin/sh", "-c", script],
        "env": {},
        "image": "",
        "files": [],
        "volumes": [],
        "runtime": "process",
    }
    launcher = LocalLauncher(tmp_path / "machines", server, program, "agent")
    launcher.launch(boot(server))
    try:
        found = until(lambda: pids.exists() and len(pids.read_text().split()) == 2 and pids.read_text(), "the task")
        running = [int(pid) for pid in found.split()]
        assert all(alive(pid) for pid in running)
        keeper = int((tmp_path / "machines/vm-1/keeper.pid").read_text())
    finally:
        launcher.kill("vm-1")
    until(lambda: not any(alive(pid) for pid in running), "the end of its processes")
    assert not alive(keeper)
    assert not (tmp_path / "machines/vm-1").exists()
    launcher.kill("vm-1")


def test_ending_a_machine_ends_its_gateway_too(server: str, program: Path, tmp_path: Path) -> None:
    installed()
    Plane.gateway = {"id": "g-1", "num": 0, "http": free_port(), "https": None}
    folder = Path(folder_of(str(tmp_path / "vm-1" / "data")))
    launcher = LocalLauncher(tmp_path, server, program)
    launcher.launch(boot(server))
    try:
        until(lambda: any(each.get("gateway", {}).get("state") == "running" for each in Plane.reports), "the gateway")
        nginx = int((folder / "nginx.pid").read_text())
    finally:
        launcher.kill("vm-1")
    assert not alive(nginx) and not folder.exists()


def test_machine_that_is_up_is_not_started_twice(server: str, program: Path, tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path, server, program)
    launcher.launch(boot(server))
    try:
        until(lambda: Plane.reports, "the agent's first word")
        keeper = (tmp_path / "vm-1/keeper.pid").read_text()
        LocalLauncher(tmp_path, server, program).launch(boot(server))
        assert (tmp_path / "vm-1/keeper.pid").read_text() == keeper
    finally:
        launcher.kill("vm-1")


def test_agent_that_dies_is_started_again(server: str, program: Path, tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path, server, program)
    launcher.launch(boot(server))
    try:
        first = until(lambda: Plane.reports and Plane.reports[0]["boot"], "the agent's first word")
        os.kill(int((tmp_path / "vm-1/data/lock").read_text().split()[0]), 9)
        until(lambda: any(message["boot"] != first for message in Plane.reports), "another agent")
    finally:
        launcher.kill("vm-1")


def test_machine_whose_folder_is_deleted_ends_by_itself(server: str, program: Path, tmp_path: Path) -> None:
    launcher = LocalLauncher(tmp_path / "machines", server, program)
    launcher.launch(boot(server))
    until(lambda: Plane.reports, "the agent's first word")
    home = tmp_path / "machines/vm-1"
    keeper, agent = (int((home / name).read_text().split()[0]) for name in ("keeper.pid", "data/lock"))
    shutil.rmtree(tmp_path / "machines", ignore_errors=True)
    until(lambda: not alive(keeper) and not alive(agent), "the end of the machine")


def test_cloud_of_a_started_server_finds_its_machines_again(server: str, program: Path, tmp_path: Path) -> None:
    cloud = local_cloud(tmp_path, server, program)
    wanted = request_for(cloud.offers()[0])
    handles = list(cloud.create(replace(wanted, user_data=user_data("", wanted.instance_id, "token", "0" * 64))))
    try:
        until(lambda: Plane.reports, "the agent's first word")
        keeper = next(tmp_path.glob("machines/*/keeper.pid")).read_text()
        again = local_cloud(tmp_path, server + "/moved", program)
        assert next(tmp_path.glob("machines/*/keeper.pid")).read_text() == keeper
        assert next(tmp_path.glob("machines/*/data/server")).read_text() == server + "/moved"
        assert [each.handle for each in again.list_owned()] == handles
    finally:
        for handle in handles:
            until(lambda handle=handle: gone(cloud, handle), f"the end of {handle.id}")  # type: ignore[misc]
    assert not list(tmp_path.glob("machines/*"))


def gone(cloud: Any, handle: Any) -> bool:
    try:
        cloud.terminate(handle)
    except Gone:
        return True
    return False
