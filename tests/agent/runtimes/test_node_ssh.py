"""What a node gets so that it reaches the others: its client's files, and the devices of their network."""

from __future__ import annotations

import io
import os
import resource
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program.roster import Roster
from chalicelib.agent.runtimes import fabric
from chalicelib.agent.runtimes.docker import container_body
from chalicelib.agent.runtimes.docker_client import DockerClient
from chalicelib.agent.runtimes.node_ssh import client_files, configuration, equip_container
from chalicelib.agent.runtimes.visibility import TaskCards
from chalicelib.agent.sessions import logins
from tests.agent import docker_engine

NODES: dict[str, Any] = {
    "rank": 0,
    "private_key": "PRIVATE",
    "public_key": "ssh-ed25519 AAAA",
    "host_private_key": "HOST'S",
    "host_public_key": "ssh-ed25519 BBBB",
    "nodes": [
        {"name": "train-0-0", "address": "10.0.0.1", "port": 22001},
        {"name": "train-1-0", "address": "10.0.0.2", "port": 22001},
        {"name": "train-2-0", "address": "10.0.0.2", "port": 22002},
    ],
}
SPEC: dict[str, Any] = {"image": "i", "network": "host", "node_ssh": NODES}


@pytest.mark.parametrize(
    ("login", "address", "port"),
    [
        ("train-0-0", "10.0.0.1", 22001),
        ("10.0.0.1", "10.0.0.1", 22001),
        ("train-2-0", "10.0.0.2", 22002),
        ("10.0.0.2", "10.0.0.2", 22001),
    ],
)
def test_openssh_understands_it_as_meant(tmp_path: Path, login: str, address: str, port: int) -> None:
    if not shutil.which("ssh"):
        pytest.skip("there is no ssh here")
    (tmp_path / "config").write_text(configuration(NODES, "/home of/.ssh", "root"))
    command = ["ssh", "-G", "-F", tmp_path / "config", login]
    options = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for option in (
        f"hostname {address}", f"port {port}", "user root", "identityfile /home of/.ssh/dstack_job", "batchmode yes",
        "hostkeyalias dstack-nodes", "stricthostkeychecking true", "identitiesonly yes",
    ):  # fmt: skip
        assert option in options, (option, options)
    (tmp_path / "config").write_text(configuration(NODES, "/h/.ssh", "root") + "Port 2022\nUser else\n")
    command[-1] = "elsewhere"
    options = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"user else", "port 2022", "batchmode no"} <= set(options), "other hosts are none of ours"


def test_a_job_never_gets_the_servers_key() -> None:
    assert "HOST'S" not in "".join(client_files(NODES, "/root/.ssh", "root").values())


def equip(engine: docker_engine.Engine, user: str, holds: dict[str, bytes]) -> tuple[str, dict[str, Any]]:
    """What is in a container's way, and its files: (owner, mode, text) by path."""
    engine.container("c", holds=holds)
    out = io.BytesIO()
    problem = equip_container(DockerClient(engine.socket), "c", SPEC, user, "root", out)
    if problem:
        return problem, {}
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        return problem, {
            member.name: (member.uid, oct(member.mode), (tar.extractfile(member) or io.BytesIO()).read().decode())
            for member in tar
        }


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[docker_engine.Engine]:
    with docker_engine.running(tmp_path) as engine:
        yield engine


PASSWD = b"root:x:0:0::/root:/bin/sh\nmpi:x:1001:1001::/srv/mpi:/bin/sh\n"


def test_a_container_gets_the_files_in_its_users_home(engine: docker_engine.Engine) -> None:
    holds = {"/usr/bin/ssh": b"", "/etc/passwd": PASSWD, "/srv/mpi/.ssh/config": b"Host elsewhere\n"}
    problem, files = equip(engine, "mpi", holds)
    assert not problem and set(files) == {
        "srv/mpi/.ssh", "srv/mpi/.ssh/dstack_job", "srv/mpi/.ssh/dstack_known_hosts", "srv/mpi/.ssh/config"
    }  # fmt: skip
    assert {(owner, mode) for owner, mode, _ in files.values()} == {(1001, "0o700"), (1001, "0o600")}
    assert files["srv/mpi/.ssh/config"][2].endswith("Host *\nHost elsewhere\n"), "the image's own counts as well"
    problem, files = equip(engine, "root", holds)
    assert not problem and files["root/.ssh/dstack_job"] == (0, "0o600", "PRIVATE")


@pytest.mark.parametrize(
    ("user", "holds", "want"),
    [
        ("root", {"/etc/passwd": PASSWD}, "image i has no ssh client"),
        ("1234", {"/etc/passwd": PASSWD, "/bin/ssh": b""}, "image i has no user 1234 in its list"),
    ],
)
def test_what_an_image_lacks_is_said(
    engine: docker_engine.Engine, user: str, holds: dict[str, bytes], want: str
) -> None:
    problem, _ = equip(engine, user, holds)
    assert problem.startswith("ssh and mpirun don't reach the other nodes from here: ") and want in problem


def host_config(spec: dict[str, Any], cards: TaskCards | None = None) -> dict[str, Any]:
    found: dict[str, Any] = container_body(spec, "/w", cards or TaskCards("", [], []), {})["HostConfig"]
    return found


def test_only_containers_of_several_nodes_share_their_hosts_network() -> None:
    assert host_config(SPEC)["NetworkMode"] == "host" and host_config({"image": "i"})["NetworkMode"] == "bridge"


def test_they_read_none_of_its_packets() -> None:
    assert host_config(SPEC)["CapDrop"] == ["NET_RAW"], "its own network's are a job's, but not those of a host"
    assert "CapDrop" not in host_config({"image": "i"})


def test_memory_may_be_locked_where_gpus_talk_to_those_of_other_nodes() -> None:
    def names(spec: dict[str, Any]) -> list[str]:
        return [limit["Name"] for limit in host_config(spec)["Ulimits"]]

    assert names({**SPEC, "gpus": 1}) == ["nofile", "memlock"]
    assert names({"image": "i", "gpus": 1}) == ["nofile"]
    assert fabric.locked_memory() in [(-1, -1), (resource.getrlimit(resource.RLIMIT_MEMLOCK)[1],) * 2]


@pytest.mark.slow
def test_so_it_may_by_a_plain_process() -> None:
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]

    def locked(spec: dict[str, Any]) -> tuple[int, int]:
        """In a process that has little of its own."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, hard))
                fabric.raise_limit(spec)
                os.write(writer, b"%d %d" % resource.getrlimit(resource.RLIMIT_MEMLOCK))
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as pipe:
            soft, most = map(int, pipe.read().split())
        return soft, most

    assert locked({**SPEC, "gpus": 1}) == fabric.locked_memory()
    assert locked({"gpus": 1}) == (65536, hard)


def test_infiniband_is_given_beside_other_devices_to_several_nodes_only(tmp_path: Path) -> None:
    gpu = {"PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd", "CgroupPermissions": "rwm"}
    host: dict[str, Any] = {"Ulimits": [], "Devices": [gpu]}
    fabric.add_to_host_config({"image": "i", "gpus": 8}, host, str(tmp_path))
    assert host == {"Ulimits": [], "Devices": [gpu]}
    fabric.add_to_host_config(SPEC, host, str(tmp_path))
    own = {"PathOnHost": str(tmp_path), "PathInContainer": str(tmp_path), "CgroupPermissions": "rwm"}
    assert host["Devices"] == [gpu, own] and [limit["Name"] for limit in host["Ulimits"]] == ["memlock"]


def test_what_the_cloud_names_for_its_network_is_given_where_it_exists(tmp_path: Path) -> None:
    for name in ("card", "library", "own"):
        (tmp_path / name).mkdir()
    card, library, own, none = (str(tmp_path / name) for name in ("card", "library", "own", "none"))
    spec = {**SPEC, "interconnect": {"folders": [library, own, none], "devices": [card, none]}}
    host: dict[str, Any] = {"Ulimits": []}
    fabric.add_to_host_config(spec, host, none)
    assert [device["PathInContainer"] for device in host["Devices"]] == [card]
    want = {"Type": "bind", "Source": library, "Target": library, "ReadOnly": True}
    assert fabric.mounts(spec, [own]) == [want], "what the user mounts there wins"
    shared = {"interconnect": {"writable": [own, none]}}
    assert fabric.mounts(shared, []) == [{"Type": "bind", "Source": own, "Target": own, "ReadOnly": False}]
    assert fabric.mounts(SPEC, []) == []


def test_what_keeps_other_nodes_out_is_said_while_the_job_runs(tmp_path: Path) -> None:
    roster = Roster(str(tmp_path), {}, "process", str, "", "")
    folder = roster.folder("t")
    folder.create({"spec": {}})
    logins.LoginReport(folder).update(nodes=logins.UNREACHABLE % "no sshd")
    folder.write_state({"state": "running", "message": "no client"})
    assert roster.report("t")["message"] == "no client; the other nodes can't reach this one by ssh: no sshd"
    folder.write_state({"state": "exited", "message": "exited with status 1"})
    assert roster.report("t")["message"] == "exited with status 1" and "nodes" not in roster.report("t")
