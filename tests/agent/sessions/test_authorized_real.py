"""What the host's own SSH server makes of a job's key."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chalicelib.agent.sessions import authorized
from tests.agent.ssh_client import key_pair
from tests.harness.debian import ssh_server
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, until

CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {home}/keys/host
AuthorizedKeysFile {home}/.ssh/authorized_keys
StrictModes no
PermitRootLogin prohibit-password
PidFile none
KexAlgorithms curve25519-sha256
"""


@dataclass
class Host:
    options: list[str]  # of an SSH client that has the job's key
    user: str
    job: socket.socket  # listens on the port that the key is for

    def refused(self, *more: str, command: tuple[str, ...] = ()) -> str:
        argv = ["ssh", *self.options, *more, f"{self.user}@127.0.0.1", *command]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
        assert done.returncode != 0
        return done.stderr.decode()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    ssh_server()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    me = pwd.getpwuid(os.getuid())
    key, public = key_pair(tmp_path / "keys", "user")
    key_pair(tmp_path / "keys", "host")
    port = free_port()
    (tmp_path / "config").write_text(CONFIG.format(port=port, home=tmp_path))
    options = ["-F", "/dev/null", "-i", str(key), "-p", str(port)]
    for option in ("IdentitiesOnly", "BatchMode", "ExitOnForwardFailure"):
        options += ["-o", f"{option}=yes"]
    options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    with socket.create_server(("127.0.0.1", 0)) as job:
        entry = pwd.struct_passwd((*me[:5], str(tmp_path), me[6]))
        authorized.allow(me.pw_name, [public], "task", job.getsockname()[1], lambda _: entry)
        with subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", str(tmp_path / "config")]) as server:
            until("the server", lambda: answers(port))
            yield Host(options, me.pw_name, job)
            server.kill()


def test_a_jobs_key_leads_to_its_port_and_has_nothing_else_of_the_host(host: Host) -> None:
    port = host.job.getsockname()[1]
    argv = ["ssh", *host.options, "-W", f"127.0.0.1:{port}", f"{host.user}@127.0.0.1"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        host.job.settimeout(PATIENCE)
        call, _ = host.job.accept()
        call.sendall(b"from the job")
        call.close()
        assert client.stdout.read() == b"from the job"
        client.kill()
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "prohibited" in host.refused("-W", f"127.0.0.1:{other.getsockname()[1]}")
    assert "only leads to the sessions of jobs" in host.refused(command=("id",))
    for place in ("0", "127.0.0.1:0", "localhost:0"):
        assert "forwarding failed" in host.refused("-N", "-R", f"{place}:localhost:1"), "nobody listens for a job"
