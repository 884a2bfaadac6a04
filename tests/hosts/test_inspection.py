"""A look at a host: the script in a real shell, its report, and everything that is missing named at once."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from chalicelib.api.wire.server import health_json
from chalicelib.domain.ids import server_mark
from chalicelib.hosts.inspection import SHORT, HostReport, inspection_script, lacks, parse_report
from chalicelib.hosts.reachability import ENGINE, reach

FINE = HostReport(
    sudo="yes",
    kernel="Linux",
    arch="x86_64",
    os="Debian GNU/Linux 12 (bookworm)",
    clock=1_800_000_000,
    python="3.11",
    systemd=True,
    docker_client=True,
    docker=True,
    disk_mib=50_000,
    forwarding="yes",
    complete=True,
)
OWNER = "install/one"


def test_a_host_that_has_everything_lacks_nothing() -> None:
    assert lacks(FINE, "ubuntu", OWNER) == ()
    assert lacks(replace(FINE, owner=OWNER), "ubuntu", OWNER) == ()


@pytest.mark.parametrize(
    ("changes", "what", "mend"),
    [
        ({"sudo": "password"}, "sudo asks ubuntu for a password", "NOPASSWD"),
        ({"sudo": "missing"}, "ubuntu isn't root and there is no sudo", "log in as root"),
        ({"docker": False, "docker_client": False}, "there is no Docker Engine", "get.docker.com"),
        ({"docker": False, "docker_error": "Cannot connect"}, "doesn't answer (Cannot connect)", "enable --now docker"),
        ({"python": ""}, "there is no Python 3", "python3"),
        ({"python": "3.6"}, "its Python is 3.6, but 3.8 or newer is needed", "python3"),
        ({"systemd": False}, "wasn't booted with systemd", "systemd"),
        ({"forwarding": "no"}, "forbids forwarding", "AllowTcpForwarding yes"),
        ({"arch": "riscv64"}, "its CPU architecture is riscv64", "x86-64 or ARM64"),
        ({"kernel": "Darwin"}, "it runs Darwin", "Linux"),
        ({"disk_mib": 200}, "only 200 MiB are free", "1 GiB"),
        ({"owner": "install/two"}, "belongs to instance two of this server", "remove it from its fleet"),
        ({"owner": "other/two"}, "belongs to another dstack server (installation other)", "/var/lib/dstack/owner"),
    ],
)
def test_what_is_missing_is_named_with_what_mends_it(changes: dict[str, object], what: str, mend: str) -> None:
    (found,) = lacks(replace(FINE, **changes), "ubuntu", OWNER)
    assert what in found.what
    assert mend in found.mend
    assert str(found) == f"{found.what} (to fix it: {found.mend})"


@pytest.mark.parametrize(
    ("off", "which"), [(600, "10 minutes ahead of"), (599, "10 minutes ahead of"), (-722, "12 minutes behind")]
)
def test_a_clock_that_is_wrong_is_named(off: int, which: str) -> None:
    now = FINE.clock
    assert now is not None
    (found,) = lacks(replace(FINE, clock=now + off), "ubuntu", OWNER, now=now)
    assert found.what == f"its clock is {which} the server's" and "set-ntp" in found.mend
    assert lacks(replace(FINE, clock=now + off // 10), "ubuntu", OWNER, now=now) == ()


def test_what_only_root_is_told_isnt_called_missing() -> None:
    cautious = replace(FINE, sudo="password", docker=False, docker_error="sudo: a password is required", forwarding="")
    (found,) = lacks(cautious, "ubuntu", OWNER)
    assert "sudo asks ubuntu for a password" in found.what


def test_everything_is_named_at_once() -> None:
    assert (
        len(lacks(replace(FINE, docker=False, docker_client=False, python="", sudo="password"), "ubuntu", OWNER)) == 3
    )


@pytest.mark.slow
def test_the_script_tells_about_this_machine() -> None:
    done = subprocess.run(["sh", "-c", inspection_script()], capture_output=True, text=True, check=True, timeout=120)
    seen = parse_report(done.stdout)
    assert seen.complete and seen.kernel == "Linux" and seen.arch == os.uname().machine
    assert seen.python and seen.disk_mib and seen.clock
    assert seen.sudo == ("root" if os.geteuid() == 0 else seen.sudo)


def test_the_short_look_says_who_may_do_what() -> None:
    done = subprocess.run(["sh", "-c", SHORT], capture_output=True, text=True, check=True, timeout=120)
    seen = parse_report(done.stdout)
    assert seen.complete and seen.sudo and not seen.kernel
    assert [line.partition("=")[0] for line in done.stdout.splitlines()] == ["uid", "sudo", "owner", "end"]


def test_values_are_told_on_one_line_each() -> None:
    functions = SHORT[: SHORT.index("have()")]
    script = functions + """say one 'a *  b'; say two "$(printf 'c\\r\\n\\nd\\n')"; say three ''; say four "a b" """
    done = subprocess.run(["sh", "-uc", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["one=a *  b", "two=c d", "three=", "four=a b"]


@pytest.mark.slow
def test_sudo_is_asked_once_and_may_refuse(tmp_path: Path) -> None:
    """Whatever needs root goes through the one call."""
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    sudo = tmp_path / "sudo"
    (tmp_path / "id").chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def inspect_with_sudo(answers: str) -> HostReport:
        sudo.write_text(f"#!/bin/sh\necho >> {tmp_path}/asked\n{answers}\n")
        sudo.chmod(0o755)
        done = subprocess.run(
            ["sh", "-c", inspection_script()], capture_output=True, text=True, check=True, timeout=120, env=path
        )
        return parse_report(done.stdout)

    allowed = inspect_with_sudo('shift; exec "$@"')
    refused = inspect_with_sudo("echo 'sudo: a password is required' >&2; exit 1")
    assert (allowed.sudo, refused.sudo) == ("yes", "password") and allowed.complete and refused.complete
    assert allowed.docker or allowed.docker_error or not allowed.docker_client, "the engine was asked"
    assert not refused.docker and not refused.docker_error and refused.python == allowed.python
    assert (tmp_path / "asked").read_text() == "\n\n"


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("Include /etc/ssh/sshd_config.d/*.conf\n#AllowTcpForwarding no", "yes"),
        ("  allowtcpforwarding local", "asked"),
        ("Include /srv/sshd.conf", "asked"),
    ],
)
@pytest.mark.slow
def test_sshd_is_asked_what_it_forwards_where_a_setting_may_say(tmp_path: Path, setting: str, found: str) -> None:
    (tmp_path / "ssh/more").mkdir(parents=True)
    (tmp_path / "ssh/more/some.conf").write_text(f"{setting}\n")
    for name, does in {"id": "echo 0", "sshd": "echo allowtcpforwarding asked"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    script = inspection_script().replace("/etc/ssh |", f"{tmp_path}/ssh |").replace("-d /etc/ssh", f"-d {tmp_path}/ssh")
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=120, env=path)
    assert parse_report(done.stdout).forwarding == found


def test_a_look_that_was_cut_off_is_known() -> None:
    assert not parse_report("uid=0\nsudo=root\n").complete


def test_numbers_that_arent_are_absent() -> None:
    assert parse_report("clock=soon\ndisk_kib=\nend=yes\n") == HostReport(complete=True)
    assert parse_report("disk_kib=99999999999999999999\n").disk_mib is None


def test_a_host_may_say_anything_and_little_of_it_is_repeated() -> None:
    output = "".join(
        f"{name}={'9' * 100_000}.{'9' * 100_000}\n" for name in ("kernel", "arch", "python", "owner", "os")
    )
    seen = parse_report(output + "clock=" + "9" * 100_000 + "\n")
    assert seen.clock is None
    assert len("; ".join(map(str, lacks(seen, "me", "ours/1")))) < 3000


MARK = server_mark("ours")
OURS = b"HTTP/1.1 200 OK\r\n\r\n" + orjson.dumps(health_json("ours"))


@contextlib.contextmanager
def serving_banner(banner: bytes, path: str = "") -> Iterator[int]:
    """The port of whatever says that to everybody. `path`: of a socket, instead."""
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as listener:
        listener.bind(path or ("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listener.accept()
                    with accepted:
                        accepted.recv(1000)
                        accepted.sendall(banner)
                        accepted.shutdown(socket.SHUT_WR)
                        while accepted.recv(1000):
                            """Until it has read them: what is left unread here would break the connection first."""

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield 0 if path else listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.slow
def test_the_server_is_reached_and_no_other() -> None:
    """At 127.0.0.1, say, a host may well have an HTTP server of its own."""

    def reached(server: str, relay: str = "") -> str:
        done = subprocess.run(["sh", "-c", reach(server, MARK, relay)], capture_output=True, text=True, timeout=120)
        return "yes" if done.returncode == 0 else done.stderr

    ours, foreign = OURS, b"HTTP/1.1 200 OK\r\n\r\n" + orjson.dumps(health_json("another"))
    with serving_banner(ours) as web, serving_banner(foreign) as other, serving_banner(b"220 mail\r\n") as mail:
        assert reached(f"http://127.0.0.1:{web}/below") == "yes"
        assert reached("http://plane.invalid", f"127.0.0.1:{web}") == "yes", "the head node knows the way"
        assert "another server answers there" in reached(f"http://127.0.0.1:{other}")
        assert "no HTTP server answers there" in reached(f"http://127.0.0.1:{mail}")
        assert "SSL" in reached(f"https://127.0.0.1:{web}")
    assert "refused" in reached(f"http://127.0.0.1:{web}")
    for busy, found in ((b"503 Busy", True), (b"429 Too Many Requests", True), (b"404 Not Found", False)):
        with serving_banner(b"HTTP/1.1 " + busy + b"\r\n\r\n") as web:
            assert (reached(f"http://127.0.0.1:{web}") == "yes") is found, busy


def inspected(script: str) -> HostReport:
    return parse_report(
        subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=120).stdout
    )


@pytest.mark.slow
def test_the_look_tries_to_reach_the_server() -> None:
    with serving_banner(OURS) as web, serving_banner(b"220 mail\r\n") as mail:
        for port, reaches in ((web, True), (mail, False)):
            seen = inspected(inspection_script(f"http://127.0.0.1:{port}", MARK))
            assert seen.complete and seen.python and seen.reaches is reaches
        assert not inspected(inspection_script()).reaches


@pytest.mark.slow
def test_the_engine_is_asked_itself(tmp_path: Path) -> None:
    script = inspection_script().replace(ENGINE, path := f"{tmp_path}/engine")

    def engine(answer: bytes) -> tuple[bool, str]:
        with serving_banner(answer, path):
            seen = inspected(script)
        Path(path).unlink()
        return seen.docker, seen.docker_error

    assert engine(b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\n\r\nOK") == (True, "")
    assert engine(b"HTTP/1.0 500 Internal Server Error\r\n\r\n") == (False, "HTTP/1.0 500 Internal Server Error")
    seen = inspected(script)
    assert (seen.docker, seen.docker_error) == (False, f"{path}: No such file or directory")
