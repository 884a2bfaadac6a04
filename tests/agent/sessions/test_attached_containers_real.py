"""Sessions in a container that is a machine, whose image has no SSH server: the carrier's serves them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.domain import container_script
from tests.agent.containers import NO_CARRIER, Provider, selling
from tests.agent.ssh_client import key_pair
from tests.harness.debian import NotHere
from tests.harness.docker import DockerEngine
from tests.harness.images import applets_image, debian_image, distroless_image, pythonic_image

pytestmark = pytest.mark.slow

PORT = 18473
HOLD = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
SERVED = f"echo served >/tmp/index.html; httpd -p 127.0.0.1:{PORT} -h /tmp; {HOLD}"


@pytest.fixture
def provider(docker_engine: DockerEngine) -> Iterator[Provider]:
    yield from selling(docker_engine)


RESTRICTED = {
    "user": "12345:54321",
    "ReadonlyRootfs": True,
    "Tmpfs": {"/tmp": "exec,mode=1777"},
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
}
READ_ONLY = {
    "ReadonlyRootfs": True,
    "Tmpfs": {"/tmp": "exec,mode=1777"},
    "CapDrop": ["SYS_CHROOT", "AUDIT_WRITE"],
}


@pytest.mark.parametrize(
    ("host", "user", "ids"),
    [
        ({}, "root", "0 0"),
        (RESTRICTED, "12345", "12345 54321"),
        (READ_ONLY, "root", "0 0"),
    ],
    ids=["root", "restricted", "root of a read-only root with few rights"],
)
def test_a_session_is_in_the_job(
    provider: Provider, tmp_path: Path, host: dict[str, object], user: str, ids: str
) -> None:
    """Its user, folder and variables; output, errors and exit status; a terminal, files, ports."""
    key, public = key_pair(tmp_path / "keys", "user")
    name = provider.sell(applets_image(), **host)
    task = provider.holds("/bin/sh", "-c", SERVED, keys=[public])
    client = provider.login(name, task, key)
    assert provider.plane.reports[task]["ssh"]["username"] == user
    assert client.output("echo $(id -u) $(id -g) $(pwd) $OURS, $IMAGE") == f"{ids} /work said, its own\n"
    done = client.run("127.0.0.1", "cat; echo wrong >&2; exit 7", stdin=b"\0bytes\xff\n" * 10_000)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"\0bytes\xff\n" * 10_000, b"wrong\n")
    terminal = client.run("-tt", "127.0.0.1", "tty; ls -ln $(tty)").stdout.decode().split()
    assert terminal[0].startswith("/dev/pts/") and terminal[3] == ids.split(maxsplit=1)[0], terminal
    (tmp_path / "one.txt").write_text("one")
    client.copy(str(tmp_path / "one.txt"), ":/tmp/two.txt")
    client.copy(":/tmp/two.txt", str(tmp_path / "three.txt"))
    assert (tmp_path / "three.txt").read_text() == "one"
    assert client.port(PORT).endswith(b"\r\n\r\nserved\n")
    assert "LD_" not in client.output("env"), "nothing of the carrier"
    session = client.start("127.0.0.1", "sleep 600")
    provider.ends(name, task)
    assert session.wait(120) != 0, "it ends with its job"


def test_an_image_without_a_shell_has_no_session_but_files_and_ports(provider: Provider, tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc to make a static program with")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    key, public = key_pair(tmp_path / "keys", "user")
    host = {"user": "65532", "ReadonlyRootfs": True, **provider.prepares(mounted)}
    name = provider.sell(distroless_image(), container_script.prepared(), **host)
    task = provider.holds("/serve", str(PORT), keys=[public])
    client = provider.login(name, task, key)
    done = client.run("127.0.0.1", "echo here")
    assert done.returncode == 255
    assert done.stderr.startswith(b"dstack: there is no /bin/sh here to run a session in; scp and sftp copy files")
    assert client.port(PORT).endswith(b"\r\n\r\nserved\n")
    client.copy(":/serve", str(tmp_path / "serve"))
    assert (tmp_path / "serve").read_bytes().startswith(b"\x7fELF")
    provider.ends(name, task)


def test_an_account_that_the_image_has_locked_is_let_in(provider: Provider, tmp_path: Path) -> None:
    try:
        image = debian_image("curl", name="test/debian-curl:1")
    except NotHere as problem:
        pytest.skip(str(problem))
    key, public = key_pair(tmp_path / "keys", "user")
    name = provider.sell(image)
    task = provider.holds("/bin/sh", "-c", HOLD, keys=[public])
    output = provider.login(name, task, key).output("id -un; cut -d: -f1,2 /etc/shadow; echo ${BASH_VERSION%%.*}")
    assert output == "root\nroot:!\n5\n"
    provider.ends(name, task)


@pytest.mark.parametrize("carried", [True, False])
def test_an_image_with_a_python_but_no_ssh_server_gets_one(provider: Provider, tmp_path: Path, carried: bool) -> None:
    key, public = key_pair(tmp_path / "keys", "user")
    name = provider.sell(pythonic_image(), env={} if carried else NO_CARRIER)
    task = provider.holds("/bin/sh", "-c", HOLD, keys=[public])
    if carried:
        assert provider.login(name, task, key).output("id -u; echo $OURS") == "0\nsaid\n"
    else:
        problem = provider.plane.until(lambda: provider.plane.reports[task].get("ssh"))["problem"]
        assert problem.startswith("attaching isn't possible: this image has no sshd, and this control plane has no")
    provider.ends(name, task)
