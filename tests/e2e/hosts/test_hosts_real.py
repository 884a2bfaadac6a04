"""The kit proves itself: what other tests take for granted of a site, its hosts and their end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.runtime_conformance import seconds
from tests.e2e.hosts import claim, snapshot
from tests.e2e.hosts.network import CONTROL, HEAD
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import workers
from tests.harness.images import BUSYBOX, busybox_image
from tests.harness.server import ROOT, until

UNIT = "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with or_skipped(workers(2)) as one:
        for host in one.workers:
            host.import_image(busybox_image())
        yield one


# Hosts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_a_worker_runs_a_container_ordered_over_ssh(site: Site, name: str) -> None:
    output = site.host(name).ssh(f"hostname; id -un; sudo -n docker run --rm {BUSYBOX} echo from inside").stdout
    assert output.split("\n") == [name, "ubuntu", "from inside", ""]


def test_every_service_of_a_host_is_well(site: Site) -> None:
    assert [host.systemctl("is-system-running") for host in site.hosts.values()] == ["running"] * 3
    assert site.workers[0].systemctl("is-active", "ssh", "docker").split() == ["active", "active"]


def test_containers_may_be_privileged_and_limited(site: Site) -> None:
    options = ("--privileged", "--ulimit", "memlock=-1", "--memory", "64m", "--publish", "8000:80")
    assert site.workers[0].docker("run", "--rm", *options, BUSYBOX, "echo", "ran").stdout == "ran\n"


def test_nothing_of_this_machine_but_its_programs_is_there(site: Site) -> None:
    host = site.workers[0]
    folders = "bin boot dev etc home lib lib32 lib64 libx32 media mnt opt proc root run sbin srv sys tmp usr var"
    assert set(host.run("ls", "/").stdout.split()) <= set(folders.split())
    concealed = (
        "/root",
        "/mnt",
        "/srv",
        "/usr/local/bin",
        "/var/tmp",
        "/etc/apt",
        "/etc/profile.d",
        "/etc/ssl/private",
    )
    assert host.run("find", *concealed, "-type", "f", check=False).stdout == ""
    assert host.run("ls", "/home").stdout == "ubuntu\n"
    assert not (host.root / str(ROOT)[1:]).exists()
    assert "PYTEST_CURRENT_TEST" not in host.run("cat", "/proc/1/environ").stdout
    with subprocess.Popen(["sleep", duration := seconds()]) as process:
        assert duration not in host.run("ps", "-eo", "args", "--no-headers").stdout
        process.kill()


def test_the_agents_python_is_there(site: Site) -> None:
    output = (
        site.workers[0].ssh("/usr/bin/python3 -c 'import json, ssl, sys; print(sys.version_info >= (3, 8))'").stdout
    )
    assert output == "True\n"


def test_hosts_differ_in_keys_and_identity(site: Site) -> None:
    for path in ("/etc/ssh/ssh_host_ed25519_key.pub", "/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        assert len({host.run("cat", path).stdout for host in site.hosts.values()}) == 3, path


# The network --------------------------------------------------------------------------------------------------------


def test_control_reaches_the_head_and_no_further(site: Site) -> None:
    site.control.connect((HEAD, 22)).close()
    for host in site.workers:
        with pytest.raises(OSError, match="unreachable"):
            site.control.connect((host.address, 22))
        site.head.namespace.connect((host.address, 22)).close()
        assert host.run("ip", "route", "get", CONTROL, check=False).returncode != 0
    assert "unreachable" in site.control.run("ip", "route", "get", "192.0.2.1").stderr


def test_an_unplugged_host_is_silent_until_it_is_plugged_in(site: Site) -> None:
    host = site.host("w2")
    impatient = ("-o", "ConnectTimeout=1")
    # Its output goes nowhere: the login to the head may hold it for two minutes longer.
    silent = {"capture_output": False, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    host.unplug()
    assert host.ssh("true", check=False, options=impatient, **silent).returncode == 255
    host.plug("eth0")
    host.ssh("true")


# Access -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_host_accepts_keys_of_every_kind(site: Site, kind: str) -> None:
    key = site.new_key(kind)
    config = f"-F none -i {key.path} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    assert site.control.run("ssh", *config.split(), f"ubuntu@{HEAD}", "id", "-un").stdout == "ubuntu\n"


def test_a_key_with_a_passphrase_is_of_no_use_without_it(site: Site) -> None:
    key = site.new_key("ed25519", passphrase="well kept")
    unlock = [["ssh-keygen", "-y", "-P", passphrase, "-f", str(key.path)] for passphrase in ("guessed", key.passphrase)]
    assert [subprocess.run(argv, capture_output=True).returncode for argv in unlock] == [255, 0]


def test_a_new_host_key_is_noticed(site: Site) -> None:
    host = site.host("w2")
    host.ssh("true")
    host.new_host_key()
    refused = host.ssh("true", check=False)
    assert refused.returncode == 255 and "verification failed" in refused.stderr
    (site.folder / "known_hosts").unlink()
    host.ssh("true")


# Power --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", ["a reboot ordered inside", "a power failure"])
def test_a_host_boots_again_with_its_files_and_containers(site: Site, power: str) -> None:
    host = site.host("w1")
    run = ("run", "--detach", "--restart", "always", "--stop-timeout", "1", "--name", "kept", BUSYBOX)
    host.docker(*run, "sleep", "1000")
    host.write("/srv/kept", "of before")
    boot = host.run("cat", "/proc/sys/kernel/random/boot_id").stdout
    if power == "a power failure":
        host.kill()
    else:
        host.ssh("sudo systemctl reboot", check=False)
        host.wait_off()
    assert not host.on
    host.boot()
    assert host.run("cat", "/proc/sys/kernel/random/boot_id").stdout != boot
    assert host.ssh("cat /srv/kept").stdout == "of before"
    until("the container", lambda: host.docker("inspect", "-f", "{{.State.Running}}", "kept").stdout == "true\n")
    host.docker("rm", "--force", "kept")


# Snapshots ----------------------------------------------------------------------------------------------------------


def test_a_snapshot_tells_what_was_planted_and_nothing_else(site: Site) -> None:
    host = site.host("w1")
    host.ssh("sudo -n true")
    before = snapshot.take(host)
    host.write("/opt/planted/file", "x", 0o600)
    host.write("/etc/systemd/system/planted.service", UNIT)
    host.systemctl("enable", "--now", "planted")
    host.run("useradd", "--system", "planted")
    host.docker("run", "--detach", "--name", "planted", BUSYBOX, "sleep", "2000")
    host.run("rm", "/etc/issue")
    changes = before.changes(snapshot.take(host))
    for start in (
        "+ file /opt/planted/file -rw------- 0:0 1 bytes",
        "+ file /etc/systemd/system/multi-user.target.wants/planted.service lrwxrwxrwx",
        "+ file /etc/issue gone",
        "+ unit planted.service loaded active running",
        "+ process root /bin/sleep 1000",
        "+ process root sleep 2000",
        "+ user planted:",
        f"+ container /planted of {BUSYBOX}, running",
        "- file /etc/passwd",
        "+ interface veth",
    ):
        assert any(line.startswith(start) for line in changes), (start, changes)
    host.docker("rm", "--force", "planted")
    host.run("userdel", "planted")
    host.systemctl("disable", "--now", "planted")
    host.run("rm", "-r", "/opt/planted", "/etc/systemd/system/planted.service")
    host.systemctl("daemon-reload")
    host.write("/etc/issue", (host.disk.image / "etc/issue").read_text())
    until("nothing to be left", lambda: before.changes(snapshot.take(host)) == [])


# The end ------------------------------------------------------------------------------------------------------------


def machine() -> tuple[str, ...]:
    """What a site mustn't touch: this machine's own network. Without what counts up or down by itself."""
    commands = ("ip -o link", "ip -o addr | sed s/valid.*//", "ip route", "iptables-save | grep ^-")
    run = (subprocess.run(command, shell=True, capture_output=True, text=True) for command in commands)
    return (*(done.stdout for done in run), Path("/proc/sys/net/ipv4/ip_forward").read_text())


def test_nothing_is_left_of_a_site_and_nothing_was_done_to_the_machine() -> None:
    before = machine()
    with or_skipped(workers(1)) as site:
        assert machine() == before
        assert claim.left(site.name)
        site.workers[0].stop()
    assert claim.left(site.name) == []
    assert machine() == before


def test_the_next_site_removes_what_a_killed_owner_left(site: Site) -> None:
    command = [sys.executable, "-m", "tests.e2e.hosts", "--workers", "1", "--light"]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name = owner.stdout.readline().split()[0]
    stray = subprocess.Popen(["nsenter", f"--net=/run/netns/{name}-control", "--", "sleep", "1000"])
    until("it to be there", lambda: Path(f"/proc/{stray.pid}/comm").read_text() == "sleep\n")
    assert name not in claim.sweep()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert claim.left(name)
    assert name in claim.sweep()
    assert claim.left(name) == []
    assert stray.wait(120) == -signal.SIGKILL
    site.head.ssh("true")
