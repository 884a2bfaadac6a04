"""Hosts that each lack or have something, as they were ordered."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.program import gpu_tools
from tests.e2e.hosts import stubs
from tests.e2e.hosts.network import CONTROL
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import PASSWORD, HostSpec, workers
from tests.harness.images import BUSYBOX, busybox_image


@pytest.fixture(scope="module")
def odd() -> Iterator[Site]:
    """Hosts that each lack or have something."""
    h200 = stubs.nvidia(("NVIDIA H200", 143771), ("NVIDIA H200", 143771))
    engines = (stubs.engine_version("19.03.15+dfsg1"), h200)
    accelerators = (stubs.amd(("AMD Instinct MI300X", 196592)), stubs.gaudi(2), stubs.tenstorrent("n300 L", "n300 R"))
    specs = [
        HostSpec("cautious", sudo="password", boots=False, hostname="twin", stubs=(stubs.no_engine(),)),
        HostSpec("humble", sudo="none", boots=False, hostname="twin", networks=("a", "b")),
        HostSpec("full", stubs=engines, engine_disk_mib=24, memory_mib=512, networks=("b",)),
        HostSpec("arm", boots=False, stubs=(stubs.architecture("aarch64"), stubs.clock("+90d"), *accelerators)),
        HostSpec(
            "old", boots=False, user="root", stubs=(stubs.architecture("i686"), stubs.broken("nvidia-smi", "x", 9))
        ),
    ]
    with or_skipped(specs, workers_reach_plane=True) as one:
        yield one


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


def test_a_host_on_two_networks_and_one_on_the_other(odd: Site) -> None:
    assert [odd.host(name).addresses for name in ("cautious", "humble", "full")] == [
        ["198.18.1.11"],
        ["198.18.1.12", "198.18.2.12"],
        ["198.18.2.13"],
    ]
    assert odd.host("full").namespace.connect(("198.18.2.12", 22))


def test_sudo_as_it_is_granted(odd: Site) -> None:
    cautious = odd.host("cautious").ssh("sudo -n id; sudo -S id -u", input=f"{PASSWORD}\n")
    assert "a password is required" in cautious.stderr and cautious.stdout == "0\n"
    humble = odd.host("humble").ssh("sudo -S id -u", check=False, input=f"{PASSWORD}\n")
    assert "not in the sudoers file" in humble.stderr and humble.stdout == ""


def test_a_head_may_refuse_to_forward() -> None:
    with or_skipped(workers(1, boots=False), head=HostSpec("head", boots=False, forwarding=False)) as site:
        site.head.ssh("true")
        assert site.workers[0].ssh("true", check=False).returncode == 255


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


def test_the_agent_reads_every_vendors_tool(odd: Site) -> None:
    host = odd.host("arm")
    found = [parse(host.run(*argv).stdout) for vendor, argv, parse in gpu_tools.TOOLS if argv != gpu_tools.NVIDIA]
    assert [[card["name"] for card in cards] for cards in found] == [["MI300X"], ["Gaudi2"] * 2, ["n300"]]
    rocm = json.loads(host.run("rocm-smi", "--showmeminfo", "vram", "--showproductname", "--json").stdout)
    assert rocm["card0"]["VRAM Total Memory (B)"] == str(196592 << 20)


def test_a_disk_fills_and_memory_ends(odd: Site) -> None:
    host = odd.host("full")
    fill = host.run("sh", "-c", "head -c 32M /dev/zero > /var/lib/docker/much", check=False)
    host.run("rm", "-f", "/var/lib/docker/much")
    assert "No space left" in fill.stderr
    limit = host.run("cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes", check=False).stdout
    assert limit in (f"{512 << 20}\n", ""), "empty where groups are of version 2"
