"""The kit proves itself: what other tests take for granted of a site, its hosts and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.hosts import claim, snapshot, stubs
from tests.e2e.hosts.network import CONTROL, HEAD
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import PASSWORD, HostSpec, workers
from tests.harness.images import BUSYBOX, busybox_image
from tests.harness.server import ROOT, until

UNIT = "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with or_skipped(workers(2)) as one:
        for host in one.workers:
            host.import_image(busybox_image())
        yield one


@pytest.fixture(scope="module")
def odd() -> Iterator[Site]:
    """Hosts that each lack or have something."""
    h200 = stubs.nvidia(("NVIDIA H200", 143771), ("NVIDIA H200", 143771))
    engines = (stubs.engine_version("19.03.15+dfsg1"), h200)
    specs = [
        HostSpec("cautious", sudo="password", boots=False, hostname="twin", stubs=(stubs.no_engine(),)),
        HostSpec("humble", sudo="none", boots=False, hostname="twin", networks=("a", "b")),
        HostSpec("full", stubs=engines, engine_disk_mib=24, memory_mib=512, networks=("b",)),
        HostSpec("arm", boots=False, stubs=(stubs.architecture("aarch64"), stubs.clock("+90d"))),
        HostSpec(
            "old", boots=False, user="root", stubs=(stubs.architecture("i686"), stubs.broken("nvidia-smi", "x", 9))
        ),
    ]
    with or_skipped(specs, workers_reach_plane=True) as one:
        yield one


# Hosts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_a_worker_runs_a_container_ordered_over_ssh(site: Site, name: str) -> None:
    said = site.host(name).ssh(f"hostname; id -un; sudo -n docker run --rm {BUSYBOX} echo from inside").stdout
    assert said.split("\n") == [name, "ubuntu", "from inside", ""]


def test_every_service_of_a_host_is_well(site: Site) -> None:
    assert [host.systemctl("is-system-running") for host in site.hosts.values()] == ["running"] * 3
    assert site.workers[0].systemctl("is-active", "ssh", "docker").split() == ["active", "active"]


def test_containers_may_be_privileged_and_limited(site: Site) -> None:
    asked = ("--privileged", "--ulimit", "memlock=-1", "--memory", "64m", "--publish", "8000:80")
    assert site.workers[0].docker("run", "--rm", *asked, BUSYBOX, "echo", "ran").stdout == "ran\n"


def test_nothing_of_this_machine_but_its_programs_is_there(site: Site) -> None:
    host = site.workers[0]
    folders = {
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib64",
        "media",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
    }
    assert set(host.run("ls", "/").stdout.split()) <= folders | {"srv", "sys", "tmp", "usr", "var", "lib32", "libx32"}
    assert not (host.root / str(ROOT)[1:]).exists()
    assert host.run("ls", "/home").stdout.split() == ["ubuntu"]
    assert host.run("ls", "-A", "/root", "/usr/local/bin", "/mnt", "/srv").stdout.split("\n\n")[0] == "/mnt:"
    assert str(os.getpid()) not in host.run("ps", "-eo", "pid", "--no-headers").stdout.split()
    assert host.run("python3", "-c", "import sys, json; print(sys.version_info >= (3, 8))").stdout == "True\n"


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


def test_the_product_runs_at_control_and_hosts_may_reach_it(odd: Site, tmp_path: Path) -> None:
    server = odd.server(tmp_path, flags=("--no-local-fleet", "--host", "0.0.0.0"))
    try:
        port = server.start().url.rpartition(":")[2]
        assert server.call("/api/projects/list")[0]["project_name"] == "main"
        for host in (odd.head, odd.host("full"), odd.host("cautious")):
            host.run("bash", "-c", f"exec 3<>/dev/tcp/{CONTROL}/{port}")
        with pytest.raises(OSError, match="unreachable"):
            odd.control.connect((odd.host("full").address, 22))
    finally:
        server.close()


def test_an_unplugged_host_is_silent_until_it_is_plugged_in(site: Site) -> None:
    host = site.host("w2")
    impatient = ("-o", "ConnectTimeout=1")
    host.unplug()
    assert host.ssh("true", check=False, options=impatient).returncode == 255
    host.plug("eth0")
    host.ssh("true")


def test_a_host_on_two_networks_and_one_on_the_other(odd: Site) -> None:
    assert [odd.host(name).addresses for name in ("cautious", "humble", "full")] == [
        ["198.18.1.11"],
        ["198.18.1.12", "198.18.2.12"],
        ["198.18.2.13"],
    ]
    assert odd.host("full").namespace.connect(("198.18.2.12", 22))


# Access -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_host_accepts_keys_of_every_kind(site: Site, kind: str) -> None:
    key = site.new_key(kind)
    config = f"-F none -i {key.path} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    assert site.control.run("ssh", *config.split(), f"ubuntu@{HEAD}", "id", "-un").stdout == "ubuntu\n"


def test_a_key_with_a_passphrase_is_of_no_use_without_it(site: Site) -> None:
    key = site.new_key("ed25519", passphrase="well kept")
    unlock = [["ssh-keygen", "-y", "-P", word, "-f", str(key.path)] for word in ("guessed", key.passphrase)]
    assert [subprocess.run(argv, capture_output=True).returncode for argv in unlock] == [255, 0]


def test_a_new_host_key_is_noticed(site: Site) -> None:
    host = site.host("w2")
    host.ssh("true")
    host.new_host_key()
    refused = host.ssh("true", check=False)
    assert refused.returncode == 255 and "verification failed" in refused.stderr
    (site.folder / "known_hosts").unlink()
    host.ssh("true")


def test_sudo_as_it_is_granted(odd: Site) -> None:
    cautious = odd.host("cautious").ssh("sudo -n id; sudo -S id -u", input=f"{PASSWORD}\n")
    assert "a password is required" in cautious.stderr and cautious.stdout == "0\n"
    humble = odd.host("humble").ssh("sudo -S id -u", check=False, input=f"{PASSWORD}\n")
    assert "not in the sudoers file" in humble.stderr and humble.stdout == ""


def test_a_head_may_refuse_to_forward() -> None:
    with or_skipped(workers(1, boots=False), head=HostSpec("head", boots=False, forwarding=False)) as site:
        site.head.ssh("true")
        assert site.workers[0].ssh("true", check=False).returncode == 255


# What hosts have, and have not --------------------------------------------------------------------------------------


def test_names_engines_architectures_and_clocks_as_ordered(odd: Site) -> None:
    assert odd.host("cautious").ssh("hostname; command -v docker", check=False).stdout == "twin\n"
    assert odd.host("humble").run("hostname").stdout == "twin\n"
    assert odd.host("full").engine.call("GET", "/version")["Version"] == "19.03.15+dfsg1"
    machine, now = odd.host("arm").ssh("uname -m; date +%s").stdout.split()
    assert machine == "aarch64"
    assert 89 <= (int(now) - time.time()) / 86400 <= 91
    assert odd.host("old").run("python3", "-c", "import platform; print(platform.machine())").stdout == "i686\n"


def test_gpus_as_their_tool_shows_them(odd: Site) -> None:
    host = odd.host("full")
    query = "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader"
    assert host.ssh(f"{query}; test -c /dev/nvidia1").stdout.splitlines() == ["NVIDIA H200, 143771 MiB"] * 2
    host.import_image(busybox_image())
    inside = host.docker("run", "--rm", "--gpus", "device=1", "--device", "/dev/nvidia1", BUSYBOX, "env").stdout
    assert "NVIDIA_VISIBLE_DEVICES=1" in inside
    assert host.run("cat", "/run/nvidia-hook.log").stdout.startswith("prestart ")
    assert odd.host("old").ssh("nvidia-smi", check=False).returncode == 9


def test_a_disk_fills_and_memory_ends(odd: Site) -> None:
    host = odd.host("full")
    fill = host.run("sh", "-c", "head -c 32M /dev/zero > /var/lib/docker/much", check=False)
    host.run("rm", "-f", "/var/lib/docker/much")
    assert "No space left" in fill.stderr
    limit = host.run("cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes", check=False).stdout
    assert limit in (f"{512 << 20}\n", ""), "empty where groups are of version 2"


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
        "+ unit file planted.service enabled",
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
    assert name not in claim.sweep()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert claim.left(name)
    assert name in claim.sweep()
    assert claim.left(name) == []
    assert stray.wait(10) == -signal.SIGKILL
    site.head.ssh("true")
