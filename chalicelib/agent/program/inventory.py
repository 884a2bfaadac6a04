"""A machine's hardware, addresses and user: measured, never assumed. A value that can't be found is absent.

A command runner and the root of the files are arguments, so that a test can stand for any machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import socket
import struct
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Tuple, cast

from ..kernel.lazy import LazyModule
from . import gpu_tools, tpu_chips
from .gpu_tools import Gpu
from .gpu_tools import Usage as GpuUsage

if TYPE_CHECKING:
    import subprocess

    from ...contract.agent import HostFacts
else:
    subprocess = LazyModule("subprocess")

Runner = Callable[[List[str]], Tuple[int, str]]  # exit status and standard output; 127: no such tool
UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2^63
TOOL_SECONDS = 30
ARCHITECTURES = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}
LOCAL_INTERFACE = re.compile(r"lo$|docker|br-[0-9a-f]{12}$|veth|virbr|cni|podman|lxc|lxd")


def run_tool(argv: List[str]) -> Tuple[int, str]:
    if not any(os.access(os.path.join(folder, argv[0]), os.X_OK) for folder in os.get_exec_path()):
        return 127, ""  # without the cost of a fork that then fails
    try:
        finished = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TOOL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 126, ""
    return finished.returncode, finished.stdout.decode("utf-8", "replace")


class Inventory:
    def __init__(self, data: str, run: Runner = run_tool, root: str = "/", facts_file: Optional[str] = None) -> None:
        """`facts_file`: a file of facts that override what is found, for simulated machines."""
        self._data, self.run, self.root, self._facts_file = data, run, root, facts_file

    def facts(self, runtimes: Dict[str, str]) -> HostFacts:
        """`runtimes`: the isolation of each runtime that works here, by name."""
        disk = os.statvfs(self._data)
        found: Dict[str, Any] = {
            "cpus": self.cpus(),
            "memory_mib": self.memory_mib(),
            "disk_mib": disk.f_bavail * disk.f_frsize >> 20,
            "arch": ARCHITECTURES.get(os.uname().machine.lower(), os.uname().machine),
            "hostname": socket.gethostname(),
            "addresses": addresses(),
            "networks": networks(),
            "gpus": self.gpus(),
            "runtimes": sorted(runtimes),
            "isolation": runtimes,
            "user": user_name(),
        }
        if self._facts_file:
            with open(self._facts_file) as file:
                found.update({name: value for name, value in json.load(file).items() if name in found})
            found["gpus"] = [dict({"id": str(number)}, **gpu) for number, gpu in enumerate(found["gpus"])]
        return cast("HostFacts", {name: value for name, value in found.items() if value is not None})

    @property
    def simulated(self) -> bool:
        """Do its GPUs come from the file of facts?"""
        return self._facts_file is not None

    def gpus(self) -> List[Gpu]:
        found: List[Gpu] = []
        for _, argv, parse in gpu_tools.TOOLS:
            status, text = self.run(argv)
            if status == 0:
                found += parse(text)
        return found + tpu_chips.chips(self.root)

    def gpu_usage(self, vendors: Iterable[str]) -> Dict[str, GpuUsage]:
        """The usage of these vendors' GPUs, by GPU id. Tenstorrent's tool doesn't report any."""
        found: Dict[str, GpuUsage] = {}
        for vendor in vendors:
            if vendor in gpu_tools.USAGE_TOOLS:
                argv, parse = gpu_tools.USAGE_TOOLS[vendor]
                status, text = self.run(argv)
                found.update(parse(text) if status == 0 else {})
        return found

    # CPU and memory, within the limits of the cgroups -------------------------------------------------------------

    def cpus(self) -> int:
        available = len(os.sched_getaffinity(0)) if self.root == "/" else self._cpus_online()
        quota = min((limit for limit in map(self._cpu_quota, self._groups("cpu")) if limit is not None), default=None)
        return available if quota is None else max(1, min(available, int(quota)))

    def _cpus_online(self) -> int:
        return len(re.findall(r"^processor\s*:", self._read("proc/cpuinfo") or "", re.MULTILINE)) or 1

    def _cpu_quota(self, group: str) -> Optional[float]:
        values = (self._read(group + "/cpu.max") or "").split()
        if len(values) != 2:
            values = [
                (self._read(group + "/cpu.cfs_quota_us") or "-1").strip(),
                (self._read(group + "/cpu.cfs_period_us") or "0").strip(),
            ]
        if not values[0].isdigit() or not values[1].isdigit() or int(values[1]) == 0:
            return None
        return int(values[0]) / int(values[1])

    def memory_mib(self) -> Optional[int]:
        match = re.search(r"^MemTotal:\s*(\d+)\s*kB", self._read("proc/meminfo") or "", re.MULTILINE)
        limits = [int(match.group(1)) << 10] if match else []
        for group in self._groups("memory"):
            for name in ("memory.max", "memory.limit_in_bytes"):
                text = (self._read("%s/%s" % (group, name)) or "").strip()
                if text.isdigit() and int(text) < UNLIMITED:
                    limits.append(int(text))
        return min(limits) >> 20 if limits else None

    def _groups(self, controller: str) -> List[str]:
        """The folders of this process's control group and of all groups above it, for cgroups version 1 and 2. In a
        container the path may be the host's; the mount's root is then the group itself."""
        found = []
        for line in (self._read("proc/self/cgroup") or "").splitlines():
            number, _, fields = line.partition(":")
            names, _, path = fields.partition(":")
            if number == "0" and not names:
                base = "sys/fs/cgroup"
            elif controller in names.split(","):
                base = "sys/fs/cgroup/" + controller
            else:
                continue
            parts = [part for part in path.split("/") if part and part != ".."]
            found += [os.path.join(base, *parts[:depth]) for depth in range(len(parts), -1, -1)]
        return found

    def _read(self, path: str) -> Optional[str]:
        try:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return None


def user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def addresses() -> List[str]:
    """The machine's IPv4 addresses: the default route's first, loopback last."""
    found = [address for _, address, _ in interfaces()]
    found.sort(key=lambda address: address.startswith("127."))
    first = default_address()
    if first is not None and first in found:
        found.remove(first)
        found.insert(0, first)
    return found


def networks() -> List[str]:
    """The networks where other machines may reach this one, as `address/prefix`: without those of container engines and
    of virtual machines, which exist on every host and lead to no other."""
    return [
        "%s/%d" % (address, bin(struct.unpack("!I", socket.inet_aton(mask))[0]).count("1"))
        for name, address, mask in interfaces()
        if not LOCAL_INTERFACE.match(name)
    ]


def interfaces() -> List[Tuple[str, str, str]]:
    """Name, IPv4 address and mask of each interface that has an address."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                address = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
                mask = fcntl.ioctl(probe.fileno(), 0x891B, request)  # SIOCGIFNETMASK
            except OSError:
                continue  # an interface without an address
            found.append((name, socket.inet_ntoa(address[20:24]), socket.inet_ntoa(mask[20:24])))
    return found


def default_address() -> Optional[str]:
    """The address of the default route's interface. Connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])
