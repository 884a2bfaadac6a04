"""Volumes for real: loop devices of this computer, formatted and mounted by the agents of the simulated cloud."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.backends.simulated.loops import LoopDevices
from tests.backends.test_loops_real import ready
from tests.harness.server import HttpError, Server, until

P = "/api/project/main/"
VOLUME = {"type": "volume", "name": "data", "backend": "aws", "region": "sim-east", "size": "1GB"}
FLEET = {"type": "fleet", "name": "pool", "nodes": {"min": 0, "max": 2}, "idle_duration": 1}
SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": "1GB.."}

pytestmark = pytest.mark.skipif(not ready(), reason="needs root, loop devices and mkfs.ext4")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--no-local-fleet")
    home = tmp_path_factory.mktemp("server") / "home"
    one = Server(home, flags=flags, env={"DSTACK_AGENT_RUNTIME": "process"})
    home.mkdir()
    try:
        one.start()
        spec = {"configuration": FLEET, "profile": {"name": "p"}}
        one.call(f"{P}fleets/apply", {"plan": {"spec": spec}, "force": False})
        one.call(f"{P}volumes/create", {"configuration": VOLUME})
        until("the volume to be there", lambda: volume(one)["status"] == "active")
        yield one
    finally:
        one.close()
        for image in home.rglob("*.img"):  # of a test that failed
            LoopDevices(image.parent).unplug(image.stem, pulled=True)


def volume(server: Server) -> Any:
    return server.call(f"{P}volumes/get", {"name": "data"})


def start(server: Server, name: str, *commands: str) -> None:
    configuration = {"type": "task", "commands": commands, "volumes": ["data:/data"], "resources": SMALL}
    spec = {"run_name": name, "repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": configuration}
    server.call(f"{P}runs/apply", {"plan": {"run_spec": spec, "current_resource": None}, "force": False})


def output_of(server: Server, name: str) -> str:
    """What the run has printed, once it is done."""

    def ended() -> Any:
        found = server.call(f"{P}runs/get", {"run_name": name})
        return found if found["status"] in ("done", "failed", "terminated") else None

    run = until(f"{name} to end", ended)
    assert run["status"] == "done", run["jobs"]
    job = run["jobs"][0]["job_submissions"][-1]
    page = server.call(f"{P}logs/poll", {"run_name": name, "job_submission_id": job["id"], "limit": 100})
    return "".join(base64.b64decode(line["message"]).decode() for line in page["logs"])


def machines(server: Server) -> list[Any]:
    return list(server.call(f"{P}fleets/get", {"name": "pool"})["instances"])


def holders(server: Server) -> list[str]:
    return [one["instance"]["fleet_name"] for one in volume(server)["attachments"]]


def detached(server: Server) -> None:
    until("it to be detached", lambda: volume(server)["attachments"] == [])


def test_what_a_run_writes_another_reads_on_another_machine(server: Server) -> None:
    start(server, "writes", "echo precious > /data/kept")
    output_of(server, "writes")
    detached(server)
    until("the machine to be given back", lambda: all(one["status"] == "terminated" for one in machines(server)))
    start(server, "reads", "cat /data/kept")
    assert output_of(server, "reads").split() == ["precious"]


def test_while_a_run_has_it_it_isnt_deleted_and_others_wait(server: Server) -> None:
    start(server, "holds", "sleep 600")
    until("it to run", lambda: server.call(f"{P}runs/get", {"run_name": "holds"})["status"] == "running")
    assert holders(server) == ["pool"]
    with pytest.raises(HttpError, match=r"Volume is in use by the run holds, on pool-.*dstack stop holds"):
        server.call(f"{P}volumes/delete", {"names": ["data"]})
    start(server, "waits", "cat /data/kept")
    server.call(f"{P}runs/stop", {"runs_names": ["holds"], "abort": True})
    assert output_of(server, "waits").split() == ["precious"]


def test_deleted_it_leaves_nothing_on_this_computer(server: Server) -> None:
    detached(server)
    [image] = server.home.rglob("*.img")
    server.call(f"{P}volumes/delete", {"names": ["data"]})
    until("it to go", lambda: server.call(f"{P}volumes/list", {}) == [])
    assert not image.exists()
    looped = subprocess.run(["losetup", "-j", image], capture_output=True, text=True, check=False)
    assert looped.stdout == ""
