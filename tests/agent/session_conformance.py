"""What sessions keep in every runtime: real sshd, real client, a real task."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from chalicelib.agent.kernel.process_tree import all_pids, descendants, read_stat
from chalicelib.agent.sessions import logins
from tests.agent.runtime_conformance import PATIENCE, Workshop, seconds
from tests.agent.ssh_client import Ssh, key_pair
from tests.harness.conformance import Conformance
from tests.harness.ports import free_port

HOLD = "trap 'exit 0' TERM INT; while :; do sleep 0.1; done"


def server_of(workshop: Workshop, task: str) -> int:
    found = logins.process(workshop.roster.folder(task))
    assert found is not None, "no SSH server runs"
    return found


class SessionConformance(Conformance):
    @pytest.fixture
    def workshop(self) -> Workshop:
        raise NotImplementedError

    def login(self, workshop: Workshop, tmp_path: Path, script: str = HOLD, **spec: object) -> Ssh:
        key, public = key_pair(tmp_path / "keys", f"user{len(workshop.started)}")
        task = workshop.start(script, authorized_keys=[public], **spec)
        workshop.running(task)
        return Ssh(workshop, task, key)

    def test_a_session_is_in_the_job(self, workshop: Workshop, tmp_path: Path) -> None:
        """Its user, by number and name, its folder and variables; output, errors and exit status; input to its end. The
        client's language is passed on, but no file for all of it: a path in LC_ALL would have what is still root load a
        locale that the job made."""
        (tmp_path / "work").mkdir(mode=0o777)
        (tmp_path / "work").chmod(0o777)
        ssh = self.login(workshop, tmp_path, f"id -u; id -un; pwd; {HOLD}", env={"COLOUR": "blue green"})
        workshop.until(lambda: workshop.log(ssh.task).count(b"\n") >= 3, ssh.task)
        known = workshop.log(ssh.task).decode().split()[:3]
        assert ssh.output("id -u; id -un; pwd; echo $COLOUR").split("\n") == [*known, "blue green", ""]
        done = ssh.run("cat; echo wrong >&2; exit 7", stdin=b"\x00bytes\xff\n" * 100_000)
        assert (done.returncode, done.stderr) == (7, b"wrong\n") and done.stdout == b"\x00bytes\xff\n" * 100_000
        assert ssh.run("kill -KILL $$").returncode not in (0, 255)
        options = ("-o", f"SetEnv=LC_ALL={tmp_path} LC_TIME=C.UTF-8 LANG=C SECRET=no")
        assert ssh.output("echo $LC_TIME,$LANG,$LC_ALL,$SECRET", options=options) == "C.UTF-8,C,,\n"
        place = Path(workshop.roster.folder(ssh.task).path) / "ssh"
        assert place.stat().st_mode & 0o7777 == 0o700, "the server's keys are its own"

    def test_a_terminal(self, workshop: Workshop, tmp_path: Path) -> None:
        ssh = self.login(workshop, tmp_path)
        terminal = ssh.terminal()
        terminal.type("stty size; echo tty-$((40+2))\n")
        terminal.sees(b"33 111")
        terminal.sees(b"tty-42")
        terminal.resize(20, 90)
        terminal.type("while [ \"$(stty size)\" != '20 90' ]; do sleep 0.1; done; echo resi''zed\n")
        terminal.sees(b"resized")
        long = seconds()
        terminal.type(f"sleep {long}\n")
        workshop.until(lambda: sleeping(long), ssh.task)
        terminal.type("\x03echo interrup''ted\n")
        terminal.sees(b"interrupted")
        terminal.type("exit 5\n")
        assert terminal.status() == 5

    def test_a_client_that_goes_takes_its_command_along(self, workshop: Workshop, tmp_path: Path) -> None:
        ssh = self.login(workshop, tmp_path)
        long = seconds()
        terminal = ssh.terminal(f"sleep {long}")
        workshop.until(lambda: sleeping(long), ssh.task)
        os.kill(terminal.pid, 9)
        terminal.status()
        workshop.until(lambda: not sleeping(long), ssh.task)

    def test_neither_way_waits_for_the_other(self, workshop: Workshop, tmp_path: Path) -> None:
        """More than any buffer holds goes in before anything is read."""
        ssh = self.login(workshop, tmp_path)
        much = b"0123456789abcde\n" * (1 << 18)
        client = ssh.start("cat")
        writer = os.fork()
        assert client.stdin is not None and client.stdout is not None
        if writer == 0:
            try:
                client.stdin.write(much)
                client.stdin.close()
            finally:
                os._exit(0)
        client.stdin.close()
        assert client.stdout.read() == much
        os.waitpid(writer, 0)
        assert client.wait(PATIENCE) == 0
        flood = ssh.run(f"head -c {1 << 22} /dev/zero; cat >/dev/null; echo end", stdin=much)
        assert (len(flood.stdout), flood.returncode) == ((1 << 22) + 4, 0)

    def test_a_key_that_is_taken_away_leaves_at_once_and_one_that_is_added_comes_in(
        self, workshop: Workshop, tmp_path: Path
    ) -> None:
        pairs = [key_pair(tmp_path / "keys", name) for name in ("goes", "stays", "comes")]
        goes, stays, comes = (public for _, public in pairs)
        task = workshop.start(HOLD, authorized_keys=[goes, stays], access="1")
        workshop.running(task)
        gone, here, new = (Ssh(workshop, task, key) for key, _ in pairs)
        long = seconds()
        session = gone.start(f"sleep {long}")
        workshop.until(lambda: sleeping(long), task)
        assert here.output("echo in") == "in\n" and new.run("true").returncode == 255
        assert workshop.roster.rekey(task, "2", [stays, comes])
        assert session.wait(PATIENCE) != 0
        workshop.until(lambda: not sleeping(long), task)
        assert gone.run("true").returncode == 255
        assert new.output("echo in") == here.output("echo in") == "in\n"
        assert workshop.roster.report(task)["access"] == "2"

    def test_files_are_copied_both_ways(self, workshop: Workshop, tmp_path: Path) -> None:
        ssh = self.login(workshop, tmp_path)
        sent, back = tmp_path / "sent", tmp_path / "back"
        (sent / "deep").mkdir(parents=True)
        (sent / "deep" / "big").write_bytes(os.urandom(3 << 20))
        (sent / "text").write_text("hello\n")
        (sent / "text").chmod(0o755)
        ssh.copy(str(sent), ":copied")
        listed = ssh.output("cd copied && cat text && [ -x text ] && md5sum deep/big && ls -n text").split()
        expected = subprocess.run(
            ["md5sum"], stdin=(sent / "deep/big").open(), capture_output=True, text=True, check=True
        )
        assert listed[:2] == ["hello", expected.stdout.split()[0]]
        assert listed[5] == ssh.output("id -u").strip(), "what is copied is the job user's"
        ssh.copy(":copied", str(back))
        assert (back / "deep" / "big").read_bytes() == (sent / "deep" / "big").read_bytes()

    def test_ports_of_the_job_are_forwarded(self, workshop: Workshop, tmp_path: Path) -> None:
        ssh = self.login(workshop, tmp_path)
        port, inside = free_port(), free_port()
        server = ssh.start(self.listener(inside))
        client = ssh.start(
            options=("-N", "-L", f"127.0.0.1:{port}:localhost:{inside}", "-o", "ExitOnForwardFailure=yes")
        )
        try:
            assert talk(port, b"ping\n") == b"ping\n"
        finally:
            for each in (client, server):
                each.kill()
                each.wait()

    def listener(self, port: int) -> str:
        """A command that sends back what comes to this port."""
        raise NotImplementedError

    def test_only_the_jobs_keys_let_in(self, workshop: Workshop, tmp_path: Path) -> None:
        one, two = self.login(workshop, tmp_path), self.login(workshop, tmp_path)
        assert one.output("echo mine") == two.output("echo mine") == "mine\n", "two jobs of one host at the same time"
        stranger = Ssh(workshop, two.task, one.key)
        done = stranger.run("true")
        assert done.returncode == 255 and b"Permission denied" in done.stderr
        assert "Could not request local forwarding" not in one.run("true").stderr.decode()
        assert one.run("true", options=("-R", "0:localhost:1", "-o", "ExitOnForwardFailure=yes")).returncode == 255

    def test_connections_are_counted(self, workshop: Workshop, tmp_path: Path) -> None:
        ssh = self.login(workshop, tmp_path)
        before = workshop.until(lambda: workshop.state(ssh.task).get("idle_since"), ssh.task)
        client = ssh.start(options=("-N",))
        workshop.until(lambda: workshop.state(ssh.task)["connections"] == 1, ssh.task)
        assert "idle_since" not in workshop.state(ssh.task)
        session = ssh.start("cat")
        workshop.until(lambda: workshop.state(ssh.task)["connections"] == 2, ssh.task)
        for each in (client, session):
            each.kill()
            each.wait()
        workshop.until(lambda: workshop.state(ssh.task)["connections"] == 0, ssh.task)
        assert workshop.state(ssh.task)["idle_since"] > before

    def test_sessions_that_ended_leave_nothing_with_the_server_which_needs_no_agent(
        self, workshop: Workshop, tmp_path: Path
    ) -> None:
        """It lives as long as the job, which may take very many. There is no agent here at all, so nothing to kill:
        what serves isn't below this process."""
        ssh = self.login(workshop, tmp_path)
        for _ in range(3):
            assert ssh.output("echo here") == "here\n"
        server = server_of(workshop, ssh.task)
        assert server not in descendants(os.getpid())
        workshop.until(lambda: not children(server), ssh.task)

    def test_the_end_of_the_job_is_the_end_of_its_sessions(self, workshop: Workshop, tmp_path: Path) -> None:
        ssh = self.login(workshop, tmp_path)
        long = seconds()
        terminal = ssh.terminal(f"echo on''ce; sleep {long}")
        terminal.sees(b"once")
        server = server_of(workshop, ssh.task)
        workshop.roster.stop(ssh.task, 1)
        workshop.exited(ssh.task)
        assert terminal.status() != 0
        late = ssh.run("true")
        assert late.returncode == 255, "no session begins any more"
        workshop.roster.end_logins([ssh.task])
        workshop.until(lambda: logins.over(workshop.roster.folder(ssh.task)), ssh.task)
        assert not sleeping(long)
        workshop.until(lambda: (read_stat(server) or "Z")[0] in "ZX", ssh.task)
        assert not workshop.state(ssh.task).get("connections")

    def test_a_killed_login_server_is_harmless(self, workshop: Workshop, tmp_path: Path) -> None:
        ssh = self.login(workshop, tmp_path)
        client = ssh.start(options=("-N",))
        workshop.until(lambda: workshop.state(ssh.task)["connections"] == 1, ssh.task)
        os.kill(server_of(workshop, ssh.task), 9)
        assert client.wait(PATIENCE) == 255
        workshop.roster.stop(ssh.task, 1)
        assert workshop.exited(ssh.task)["reason"] == "terminated_by_user"


def children(parent: int) -> list[int]:
    """Those that nobody has waited for, too."""
    return [pid for pid in all_pids() if (stat := read_stat(pid)) is not None and int(stat[1]) == parent]


def sleeping(seconds: str) -> list[int]:
    """Processes of `sleep SECONDS`."""
    found = []
    for pid in all_pids():
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[-3:-1] == [b"sleep", seconds.encode()]:
            found.append(pid)
    return found


def talk(port: int, data: bytes) -> bytes:
    """What a port answers, once it does."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 20) as sock:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                if answer := sock.recv(100):
                    return answer
        except OSError:
            pass
        assert time.monotonic() < until, "nothing answers"
        time.sleep(0.05)
