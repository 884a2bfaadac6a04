"""A job's SSH server in processes of its own, as a supervisor begins it; sshd and ssh-keygen are played by scripts."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.process_tree import all_pids, read_stat
from chalicelib.agent.kernel.tasks import TaskFolder, make_pipe
from chalicelib.agent.runtimes import accounts
from chalicelib.agent.sessions import authorized, logins
from tests.agent.runtime_conformance import PATIENCE
from tests.harness.ports import free_port

SUPERVISOR = """
import signal, sys
from chalicelib.agent.sessions import logins, openssh
from chalicelib.agent.kernel.tasks import TaskFolder

class Runtime:
    def network(self, folder):
        if sys.argv[4] == "gone":
            raise LookupError("the job has gone")

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored
openssh.PLACES = sys.argv[2]
logins.LINGER = float(sys.argv[3])
logins.READY_SECONDS = None  # "settled" says that the server is ready, however long that took
begun = logins.begin(TaskFolder(sys.argv[1], "t"), Runtime())
begun.settle()
print("settled", flush=True)
sys.stdin.read()
"""
SSHD = r"""#!/bin/sh
read -r word
case $word in
in) printf 'Accepted publickey for x\r\n' >&2; echo "$# $1 $2 $3 $4"; read -r word ;;
as) read -r key
    printf 'Accepted publickey for x from 127.0.0.1 port 1 ssh2: ED25519 %s\r\n' "$key" >&2
    echo in; /bin/sleep 600; echo never ;;
hold) printf 'Accepted publickey for x\r\n' >&2
    /bin/sh -c 'trap "echo hung up; exit" HUP; echo held; while :; do /bin/sleep 0.05; done'; read -r word ;;
stay) printf 'Accepted publickey for x\r\n' >&2; /bin/sh -c 'trap "" HUP; echo $$; exec /bin/sleep 600'; read -r word ;;
*) printf 'who is\r\n%s?\r\n' "$word" >&2 ;;
esac
"""
KEYGEN = """#!/bin/sh
for file; do :; done
echo private > "$file"
echo "ssh-ed25519 HOST$$" > "$file.pub"
"""
KEY, OTHER_KEY = "ssh-ed25519 AAAA", "ssh-ed25519 BBBB"


class Served:
    def __init__(self, data: Path) -> None:
        self.data, self.folder = data, TaskFolder(str(data), "t")
        self.bin = data / "bin"
        self.bin.mkdir()
        for name, script in (("sshd", SSHD), ("ssh-keygen", KEYGEN)):
            (self.bin / name).write_text(script)
            (self.bin / name).chmod(0o755)
        self.wake = make_pipe(str(data / "wake"))
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.clients: list[socket.socket] = []

    def begin(self, linger: float = 600.0, network: str = "", **spec: Any) -> None:
        if not self.folder.launch():
            self.folder.create({"spec": {"authorized_keys": [KEY], **spec}})
        self.folder.write_state({"state": "running"})
        command = [sys.executable, "-c", SUPERVISOR, str(self.data), str(self.bin), str(linger), network]
        self.supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.supervisor.stdout is not None and self.supervisor.stdout.readline() == b"settled\n"

    def supervisor_ends(self) -> None:
        """Its login server has its output, too: that doesn't end with it."""
        if self.supervisor is not None and self.supervisor.stdin and self.supervisor.stdout:
            self.supervisor.stdin.close()
            self.supervisor.wait(PATIENCE)
            self.supervisor.stdout.close()

    def job_ends(self) -> None:
        self.folder.write_state({"state": "exited"})
        self.supervisor_ends()

    @property
    def report(self) -> dict[str, Any]:
        return logins.report(self.folder)

    @property
    def log(self) -> str:
        return (Path(self.folder.path) / "sessions.log").read_text()

    def ssh_file(self, name: str) -> Path:
        return Path(self.folder.path) / "ssh" / name

    def configuration(self, name: str = "sshd_config") -> dict[str, str]:
        lines = self.ssh_file(name).read_text().splitlines()
        return dict((fields[0], fields[2]) for fields in (line.partition(" ") for line in lines))

    def client(self, greeting: str = "", port: int | None = None) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port or self.report["ssh"]["port"]), PATIENCE)
        self.clients.append(made)
        if greeting:
            made.sendall(greeting.encode() + b"\n")
        return made

    def until(self, truth: Callable[[], Any]) -> None:
        pause, left = threading.Event(), int(PATIENCE / 0.01)
        while not truth():
            left -= 1
            assert left, f"waited in vain: {self.report}"
            pause.wait(0.01)

    def over(self) -> None:
        self.until(lambda: logins.over(self.folder))

    def end(self) -> None:
        for client in self.clients:
            client.close()
        self.supervisor_ends()
        logins.end(self.folder)
        self.over()
        os.close(self.wake)


@pytest.fixture
def served(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Served]:
    """Nobody asks a server how it ended: what it says of a bug is all that shows one."""
    served = Served(tmp_path)
    yield served
    served.end()
    assert "Traceback" not in (output := capfd.readouterr().err), output


def answer(client: socket.socket) -> bytes:
    """A line, or what came before the end."""
    received = b""
    with contextlib.suppress(ConnectionResetError):  # ended with something unread
        while not received.endswith(b"\n") and (part := client.recv(1)):
            received += part
    return received


def node_ssh(port: int) -> dict[str, Any]:
    nodes = [{"name": "a", "address": "127.0.0.9", "port": 9}, {"name": "b", "address": "127.0.0.1", "port": port}]
    return {"rank": 1, "nodes": nodes, "host_private_key": "PRIVATE\n", "public_key": "ssh-ed25519 NODES"}


def test_what_is_known_when_a_supervisor_goes_on(served: Served) -> None:
    served.begin()
    before = served.report
    key = served.ssh_file("host_key.pub").read_text().strip()
    port, context = before["ssh"]["port"], before["idle_since"]
    assert before == {
        "connections": 0,
        "idle_since": context,
        "ssh": {"port": port, "username": accounts.server_user(), "host_key": key},
    }
    assert isinstance(context, int) and key.startswith("ssh-ed25519 HOST")
    assert b"t\n" in os.read(served.wake, 100), "the agent hears of it"
    assert served.supervisor is not None
    below = [pid for pid in all_pids() if (found := read_stat(pid)) and int(found[1]) == served.supervisor.pid]
    assert below == [], "it is no child of the supervisor's, and left none behind"
    server = logins.process(served.folder)
    assert server is not None and os.getsid(server) not in (os.getsid(0), os.getsid(served.supervisor.pid))


def test_what_sshd_is_told(served: Served) -> None:
    served.begin(authorized_keys=[f"{KEY} me@home", "no key", "ecdsa-sha2-nistp256 BBBB"])
    options = served.configuration()
    folder = f"{served.folder.path}/ssh"
    assert options["HostKey"] == f'"{folder}/host_key"'
    assert options["AuthorizedKeysFile"] == f'"{folder}/authorized_keys"'
    assert (options["AllowUsers"], options["AllowTcpForwarding"]) == (accounts.server_user(), "local")
    assert (options["LoginGraceTime"], options["MaxSessions"]) == ("20", "10")
    assert options["Subsystem"] == f"sftp {logins.SFTP}"
    command = ["-I", "-S", "-c", "session", served.folder.path, str(logins.process(served.folder))]
    assert shlex.split(options["ForceCommand"])[1:] == command
    assert served.ssh_file("authorized_keys").read_text() == f"{KEY}\necdsa-sha2-nistp256 BBBB\n"
    log = Path(served.folder.path) / "sessions.log"
    modes = [
        stat.S_IMODE(path.stat().st_mode) for path in (served.ssh_file(""), served.ssh_file("authorized_keys"), log)
    ]
    assert modes == [0o700, 0o600, 0o600]
    client = served.client("in")
    assert answer(client).decode().split() == ["4", "-i", "-e", "-f", f"{folder}/sshd_config"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root shows sshd other files")
def test_the_users_that_sshd_sees(served: Served) -> None:
    """Its own list of them: the one whom it lets in isn't locked, whatever the host says."""
    served.begin()
    users = served.ssh_file("passwd").read_text().splitlines()
    assert users[0] == "root:*:0:0::/:/bin/sh"
    assert all(line.startswith("sshd:*:") and line.endswith(":/run/sshd:/usr/sbin/nologin") for line in users[1:])
    assert served.ssh_file("shadow").read_text() == "root:*:::::::\n" and served.ssh_file("records").read_text() == ""
    modes = [stat.S_IMODE(served.ssh_file(name).stat().st_mode) for name in ("passwd", "shadow")]
    assert modes == [0o644, 0o600]
    assert Path("/run/sshd").stat().st_mode & 0o022 == 0, "where sshd shuts itself in is nobody's to write to"


def test_connections_are_counted_once_they_logged_in(served: Served) -> None:
    served.begin()
    context = served.report["idle_since"]
    served.client()
    one = served.client("in")
    answer(one)
    served.until(lambda: served.report["connections"] == 1)
    assert served.report["idle_since"] is None
    two = served.client("in")
    answer(two)
    served.until(lambda: served.report["connections"] == 2)
    for client in (one, two):
        client.close()
    served.until(lambda: served.report["connections"] == 0)
    assert served.report["idle_since"] > context
    assert served.report["ssh"]["host_key"], "all else is still told"
    assert "no login" not in served.log


def test_who_doesnt_get_in_is_noted_with_the_reason(served: Served) -> None:
    served.begin()
    assert answer(served.client("stranger")) == b""
    served.until(lambda: served.log.endswith("no login: who is / stranger?\n"))
    assert served.report["connections"] == 0


@pytest.mark.parametrize(("before", "more"), [(65_535, True), (65_536, False)])
def test_notes_end_when_there_are_many(served: Served, before: int, more: bool) -> None:
    served.folder.create({"spec": {"authorized_keys": [KEY]}})
    (Path(served.folder.path) / "sessions.log").write_text("x" * before)
    served.begin()
    assert answer(served.client("stranger")) == b""
    served.supervisor_ends()
    logins.end(served.folder)
    served.over()
    assert (len(served.log) > before) is more


def test_a_job_whose_network_has_gone_lets_nobody_in(served: Served) -> None:
    served.begin(network="gone")
    assert answer(served.client("in")) == b""
    served.until(lambda: served.log.endswith("a connection: the job has gone\n"))


def test_the_end_of_the_job_hangs_sessions_up_and_lets_people_in_for_a_while(served: Served) -> None:
    served.begin()
    session, idle = served.client("hold"), served.client("in")
    assert (answer(session), answer(idle)[:1]) == (b"held\n", b"4")
    served.until(lambda: served.report["connections"] == 2)
    served.job_ends()
    assert answer(session) == b"hung up\n"
    assert answer(served.client("in"))[:1] == b"4"
    served.until(lambda: served.report["connections"] == 3)
    assert not logins.over(served.folder)
    logins.end(served.folder)
    served.over()
    assert [answer(client) for client in (session, idle)] == [b"", b""]
    assert served.report["connections"] == 0
    with pytest.raises(ConnectionRefusedError):
        served.client()


def test_after_that_while_it_ends_with_all_that_it_started(served: Served) -> None:
    served.begin(linger=0.01)
    client = served.client("in")
    answer(client)
    served.until(lambda: served.report["connections"] == 1)
    served.job_ends()
    served.over()
    assert answer(client) == b"" and served.report["connections"] == 0


def test_what_ignores_a_hangup_ends_with_it(served: Served) -> None:
    served.begin(linger=0.2)
    client = served.client("stay")
    left = int(answer(client))
    served.job_ends()
    served.over()
    served.until(lambda: left not in all_pids())


def test_it_ends_though_nobody_connects_or_leaves_meanwhile(served: Served) -> None:
    served.begin(linger=0.2)
    served.job_ends()
    served.over()


def test_a_supervisor_that_was_killed_takes_no_session_along(served: Served) -> None:
    """The next one finds a server that lives, and begins no other."""
    served.begin()
    server, port = logins.process(served.folder), served.report["ssh"]["port"]
    client = served.client("in")
    answer(client)
    served.supervisor_ends()
    served.begin()
    assert (logins.process(served.folder), served.report["ssh"]["port"]) == (server, port)
    served.folder.write_state({"state": "exited"})
    served.supervisor_ends()
    served.until(lambda: not logins.over(served.folder))
    assert answer(served.client("in"))[:1] == b"4"


def test_a_job_that_ends_while_no_supervisor_watches_hangs_up_too(served: Served) -> None:
    served.begin()
    session = served.client("hold")
    assert answer(session) == b"held\n"
    served.supervisor_ends()
    assert answer(served.client("in"))[:1] == b"4"
    served.until(lambda: served.report["connections"] == 2)
    served.folder.write_state({"state": "exited"})
    assert answer(session) == b"hung up\n"


def test_a_connection_that_cant_be_taken_is_noted_and_the_next_may_fare_better(served: Served) -> None:
    served.begin()
    server = logins.process(served.folder)
    assert server is not None
    limits = resource.prlimit(server, resource.RLIMIT_NOFILE)
    taken = {int(path.name) for path in Path(f"/proc/{server}/fd").iterdir()}
    free = next(number for number in itertools.count() if number not in taken)
    resource.prlimit(server, resource.RLIMIT_NOFILE, (free, limits[1]))
    client = served.client("in")
    served.until(lambda: "accepting: [Errno 24] Too many open files\n" in served.log)
    resource.prlimit(server, resource.RLIMIT_NOFILE, limits)
    assert answer(client)[:1] == b"4"


def test_a_server_that_was_killed_is_followed_by_one_with_its_port_and_its_key(served: Served) -> None:
    served.begin()
    before = served.report["ssh"]
    server = logins.process(served.folder)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    served.over()
    served.supervisor_ends()
    served.begin()
    assert served.report["ssh"] == before and logins.process(served.folder) not in (None, server)


def test_a_server_that_was_killed_takes_its_connections_along(served: Served) -> None:
    served.begin()
    client, server = served.client("in"), logins.process(served.folder)
    assert answer(client)[:1] == b"4" and server is not None
    os.kill(server, signal.SIGKILL)
    assert answer(client) == b""


def test_a_port_that_was_taken_meanwhile_is_left_to_whoever_has_it(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        served.folder.create({"spec": {"authorized_keys": [KEY]}})
        logins.LoginReport(served.folder).update(ssh={"port": other.getsockname()[1]})
        served.begin()
        assert served.report["ssh"]["port"] != other.getsockname()[1]
        assert answer(served.client("in"))[:1] == b"4"


def test_a_host_without_a_server_says_so(served: Served) -> None:
    (served.bin / "sshd").unlink()
    served.begin()
    served.over()
    (problem,) = served.report["ssh"].values()
    assert problem.startswith("attaching isn't possible: this host has no sshd; install its OpenSSH server")
    assert served.report["nodes"] is None and served.report["connections"] == 0


def test_where_the_host_is_the_jobs_container_its_image_is_what_lacks_one(served: Served) -> None:
    """And no carrier can be fetched."""
    (served.bin / "sshd").unlink()
    served.folder.create({"runtime": "inside", "spec": {"authorized_keys": [KEY]}})
    served.begin()
    served.over()
    problem = served.report["ssh"]["problem"]
    assert problem.startswith("attaching isn't possible: this image has no sshd, and this control plane has no carrier")


def test_a_key_that_cant_be_made_is_told_in_the_tools_words(served: Served) -> None:
    (served.bin / "ssh-keygen").write_text("#!/bin/sh\necho no; echo room >&2; exit 1\n")
    served.begin(node_ssh=node_ssh(free_port()))
    served.over()
    problem = "attaching isn't possible: ssh-keygen failed: no\nroom"
    assert served.report["ssh"] == {"problem": problem}
    assert served.report["nodes"] == f"the other nodes can't reach this one by ssh: {problem}"


def test_a_user_whom_the_host_hasnt_is_told(served: Served) -> None:
    served.begin(host_user="no-such-user")
    served.over()
    because = "the keys of no-such-user on this host: " if os.getuid() == 0 else "the agent of this host isn't root"
    assert served.report["ssh"]["problem"].startswith(f"attaching isn't possible: {because}")


def test_nodes_come_through_a_port_of_their_own(served: Served) -> None:
    port = free_port()
    served.begin(node_ssh=node_ssh(port))
    options, users = served.configuration("nodes_sshd_config"), served.configuration()
    assert options["HostKey"].endswith('/ssh/nodes_host_key"') and options["AuthorizedKeysFile"].endswith(
        '/nodes_authorized_keys"'
    )
    assert (options["AllowTcpForwarding"], options["MaxSessions"], users["MaxSessions"]) == ("no", "4", "10")
    assert served.ssh_file("nodes_authorized_keys").read_text() == "ssh-ed25519 NODES\n"
    assert served.ssh_file("authorized_keys").read_text() == f"{KEY}\n"
    assert (
        served.ssh_file("nodes_host_key").read_text(),
        stat.S_IMODE(served.ssh_file("nodes_host_key").stat().st_mode),
    ) == (
        "PRIVATE\n",
        0o600,
    )
    node, user = served.client("in", port), served.client("in")
    assert answer(node).split()[4].endswith(b"/nodes_sshd_config") and answer(user).split()[4].endswith(b"/sshd_config")
    served.until(lambda: served.report["connections"])
    assert served.report["connections"] == 1 and "nodes" not in served.report, "nobody counts nodes"
    served.job_ends()
    assert answer(node) == b"", "with the job's end"
    assert answer(served.client("in"))[:1] == b"4", "while its users may still come"
    with pytest.raises(ConnectionRefusedError):
        served.client(port=port)


def test_nodes_without_users_have_a_server_too(served: Served) -> None:
    port = free_port()
    served.begin(authorized_keys=None, node_ssh=node_ssh(port))
    assert served.ssh_file("authorized_keys").read_text() == ""
    assert answer(served.client("in", port))[:1] == b"4"


def test_a_taken_port_of_the_nodes_keeps_no_user_out(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        served.begin(node_ssh=node_ssh(port))
        why = f"port {port} of 127.0.0.1: Address already in use"
        assert served.report["nodes"] == f"the other nodes can't reach this one by ssh: {why}"
    assert answer(served.client("in"))[:1] == b"4"


def test_of_one_address_so_many_may_be_silent_and_no_more(served: Served) -> None:
    """Connections with a login don't count, nor do connections to the other port."""
    port = free_port()
    served.begin(node_ssh=node_ssh(port))
    answer(served.client("in", port))
    served.client()
    silent = [served.client(port=port) for _ in range(32)]
    assert answer(served.client(port=port)) == b""
    served.until(lambda: served.log.endswith("refused: 32 from 127.0.0.1 haven't logged in yet\n"))
    silent[0].close()
    served.until(lambda: "no login: who is" in served.log)
    assert answer(served.client("in", port))[:1] == b"4"


# --- keys that change -------------------------------------------------------------------------------------------------


def logged_in(served: Served, key: str) -> socket.socket:
    before = served.report["connections"]
    client = served.client("as")
    client.sendall(authorized.fingerprint(key).encode() + b"\n")
    assert answer(client) == b"in\n"
    served.until(lambda: served.report["connections"] == before + 1)
    return client


def test_whoever_has_a_key_that_is_no_longer_the_jobs_is_cut_off_and_nobody_else(served: Served) -> None:
    served.begin(authorized_keys=[KEY, OTHER_KEY], access="1")
    stays, goes = logged_in(served, KEY), logged_in(served, OTHER_KEY)
    served.folder.write_access("2", [KEY])
    logins.rekey(served.folder)
    assert answer(goes) == b"", "with all that runs in it"
    served.until(lambda: served.report["connections"] == 1)
    assert served.ssh_file("authorized_keys").read_text() == f"{KEY}\n"
    served.folder.write_access("3", [])
    logins.rekey(served.folder)
    assert answer(stays) == b""


def test_a_key_that_is_added_lets_in(served: Served) -> None:
    served.begin(authorized_keys=[KEY], access="1")
    served.folder.write_access("2", [KEY, OTHER_KEY])
    logins.rekey(served.folder)
    served.until(lambda: served.ssh_file("authorized_keys").read_text() == f"{KEY}\n{OTHER_KEY}\n")
    logged_in(served, OTHER_KEY)


def test_a_login_that_was_under_way_with_a_key_that_has_gone_ends_too(served: Served) -> None:
    served.begin(authorized_keys=[KEY, OTHER_KEY], access="1")
    late = served.client("as")
    served.folder.write_access("2", [KEY])
    logins.rekey(served.folder)
    served.until(lambda: served.ssh_file("authorized_keys").read_text() == f"{KEY}\n")
    late.sendall(authorized.fingerprint(OTHER_KEY).encode() + b"\n")
    assert answer(late) in (b"", b"in\n") and answer(late) == b""


def test_a_server_that_begins_again_goes_by_the_keys_of_now(served: Served) -> None:
    served.folder.create({"spec": {"authorized_keys": [KEY, OTHER_KEY], "access": "1"}})
    served.folder.write_access("2", [OTHER_KEY])
    served.begin()
    assert served.ssh_file("authorized_keys").read_text() == f"{OTHER_KEY}\n"
