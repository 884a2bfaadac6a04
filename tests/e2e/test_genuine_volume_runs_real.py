"""The genuine client's runs with volumes: real disks, which the machines of the simulated cloud mount."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.peer import Peer
from tests.harness import loops
from tests.harness.server import Server, until

pytestmark = loops.needed

VOLUME = "type: volume\nname: data\nbackend: aws\nregion: sim-east\nsize: 1GB\n"
FLEET = "type: fleet\nname: cloud\nnodes: 0..2\nresources: {cpu: 2.., memory: 1GB.., disk: 1GB..}\nidle_duration: 5m\n"
RUN = """type: task
name: %s
commands: ["%s"]
volumes: ["%s"]
resources: {cpu: 2.., memory: 1GB.., disk: 1GB..}
"""
PLACE = "data:/dstack-test-genuine"  # on this computer, whose files plain processes see


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--no-local-fleet")
    one = Server(tmp_path_factory.mktemp("server") / "home", flags=flags)
    one.home.mkdir()
    try:
        one.start()
        yield one
    finally:
        one.close()
        loops.give_back(one.home)


def write(peer: Peer, text: str) -> str:
    (peer.home / "some.dstack.yml").write_text(text)
    return "some.dstack.yml"


def run(name: str, command: str) -> str:
    return RUN % (name, command, PLACE)


def volumes(server: Server) -> dict[str, Any]:
    return {each["name"]: each for each in server.call("/api/project/main/volumes/list", {})}


def ran(peer: Peer, server: Server, name: str, command: str) -> str:
    """What it printed, once it has ended well."""
    peer.run("apply", "-y", "-d", "-f", write(peer, run(name, command)))
    until(f"{name} to end", lambda: status(server, name) in ("done", "failed", "terminated"))
    assert status(server, name) == "done", server.cli("ps", "-a", "-v", check=False)
    return peer.run("logs", name).text


def status(server: Server, name: str) -> str:
    return str(server.call("/api/project/main/runs/get", {"run_name": name})["status"])


def where(server: Server, name: str) -> dict[str, Any]:
    run = server.call("/api/project/main/runs/get", {"run_name": name})
    return dict(run["latest_job_submission"]["job_provisioning_data"])


def images(server: Server) -> set[str]:
    """The disks of this server that are attached anywhere."""
    return {disk.file.name for disk in loops.of(server.home)}


def test_what_a_run_writes_the_next_one_reads(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-f", write(peer, VOLUME))
    peer.run("apply", "-y", "-f", write(peer, FLEET))
    ran(peer, server, "writes", "echo precious > /dstack-test-genuine/file")
    assert ran(peer, server, "reads", "cat /dstack-test-genuine/file").strip() == "precious"
    until("it to be given back", lambda: not volumes(server)["data"]["attachments"])
    until("its disk to be let go", lambda: images(server) == set())
    assert where(server, "writes")["hostname"] == "localhost", "or a client that attaches ends with a traceback"


def test_the_list_shows_where_it_is_and_it_cant_be_deleted_there(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-d", "-f", write(peer, run("holds", "echo up; sleep 600")))
    until("it to run", lambda: "up" in peer.run("logs", "holds").text)
    header, row = [row for row in peer.run("volume", "list", "-v").rows() if row][:2]
    assert dict(zip(header, row, strict=False))["ATTACHED"] == "cloud", "the fleet that has it"
    assert len(images(server)) == 1
    output = peer.run("volume", "delete", "-y", "data", expect=1).text
    assert "holds" in output, output
    assert volumes(server)["data"]["status"] == "active"


def test_its_list_of_runs_shows_for_whom_the_next_run_waits(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-d", "-f", write(peer, run("waits", "echo mine")))
    until("it to wait", lambda: "waiting" in server.cli("ps", "-v", "--json"))
    (shown,) = [row for row in peer.run("ps", "-v").rows() if row[0] == "waits"]
    assert shown[-1] == "waiting for volume `data`, which run `holds` uses"
    document = json.loads(server.cli("ps", "-v", "--json"))
    (waiting,) = [one for one in document["runs"] if one["run_spec"]["run_name"] == "waits"]
    assert waiting["latest_job_submission"]["termination_reason_message"] == shown[-1]
    peer.run("stop", "-y", "-x", "waits")


def test_it_can_be_deleted_after_its_run(peer: Peer, server: Server) -> None:
    peer.run("stop", "-y", "holds")
    until("it to be given back", lambda: not volumes(server)["data"]["attachments"])
    peer.run("volume", "delete", "-y", "data")
    until("it to go", lambda: "data" not in volumes(server))
    until("its disk to be let go", lambda: images(server) == set())
    until("its image to go", lambda: not list(server.data.glob("**/*.img")))
