"""`dstack server install` on a host that systemd has booted, from the wheel to its removal, while a job runs there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.e2e.hosts.host import Host
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.operate.counting import Counting, ready, user_at
from tests.harness import installed
from tests.harness.server import Server, until

pytestmark = pytest.mark.slow

UNIT, PROGRAM = "dstack-server", "/opt/dstack/bin/dstack"
DATA = "/var/lib/dstack-server"
CAP_NET_BIND_SERVICE = 10


@contextmanager
def booted() -> Iterator[tuple[Site, Host]]:
    """A host with the package in /opt/dstack."""
    with or_skipped([HostSpec("w1")]) as site:
        (host,) = site.workers
        bring_package(host)
        yield site, host


def bring_package(host: Host) -> None:
    """As a person would: a virtual environment of the system's Python, and pip. There is no index, so what the package
    requires is there already."""
    version = host.run("python3", "-c", "import sys; print(*sys.version_info[:2], sep='.')").stdout.strip()
    if version != "{}.{}".format(*sys.version_info):
        pytest.skip(f"this system's Python is {version}, and the packages here are of another version")
    host.run("python3", "-m", "venv", "--without-pip", "/opt/dstack")
    wheel, (site,) = installed.wheel(), (host.root / "opt/dstack/lib").glob("python3.*/site-packages")
    for name in {"pip", *installed.brought(wheel, "server")}:
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                copy(Path(str(file.locate())), site / file)
    shutil.copy(wheel, host.root / "srv")
    host.run("/opt/dstack/bin/python", "-m", "pip", "install", "--no-index", f"/srv/{wheel.name}[server]")


def copy(source: Path, to: Path) -> None:
    """With what Python has compiled of it, which pip's list of files has and others' don't: without that, each start of
    the server, which may not write there, would compile all of it anew."""
    compiled = [cache_from_source(str(each)) for each in (source, to)] if source.suffix == ".py" else []
    for here, there in ((source, to), *([map(Path, compiled)] if compiled else [])):
        if here.is_file():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(here, there)


def shown(host: Host, name: str) -> str:
    return host.systemctl("show", f"--property={name}", "--value", UNIT)


def stops(host: Host) -> int:
    """How often it has said that it has stopped."""
    host.run("journalctl", "--sync")
    return host.run("journalctl", "--unit", UNIT, "--output=cat").stdout.count('"The server has stopped"')


def confined(host: Host) -> None:
    """In the view that the service has of its machine, root itself writes nowhere but where the service may, and finds
    no one's home; the agent that works for it on the same machine is bound by none of this."""
    pid = shown(host, "MainPID")
    owner = host.run("stat", "--format=%U", f"/proc/{pid}").stdout.strip()
    assert owner == "dstack-server"
    script = "for f in /etc /usr /srv /var/lib /opt/dstack; do touch $f/mark 2>/dev/null && echo $f; done; "
    script += f"touch {DATA}/mark && echo data; ls -A /home; ls -A /root; rm {DATA}/mark"
    inside = host.run("nsenter", f"--target={pid}", "--mount", "--", "sh", "-c", script, check=False)
    assert inside.stdout == "data\n", inside
    of_server = {"NoNewPrivs": "1", "Seccomp": "2", "CapBnd": f"{1 << CAP_NET_BIND_SERVICE:016x}"}
    assert limits_of(host, UNIT) == of_server
    free = limits_of(host, "dstack-agent")
    unbound = limits_of(host, "ssh")
    assert free == unbound and unbound["NoNewPrivs"] == "0"


def limits_of(host: Host, unit: str) -> dict[str, str]:
    pid = host.systemctl("show", "--property=MainPID", "--value", unit)
    lines = host.run("cat", f"/proc/{pid}/status").stdout.splitlines()
    fields = dict(line.split(":\t", 1) for line in lines)
    return {name: fields[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapBnd")}


def test_it_starts_outlives_its_restarts_with_a_job_running_and_is_removed(tmp_path: Path) -> None:
    with booted() as (site, host):
        user = user_at(host.namespace, tmp_path / "home", "http://127.0.0.1:3000")
        host.run(PROGRAM, "server", "install")
        until("the server to be ready", lambda: ready(user))
        job = Counting(site, host, user, host.run("cat", f"{DATA}/admin.token").stdout.strip())
        confined(host)
        outlived(job, host, user)
        job.end()
        host.systemctl("stop", UNIT)
        assert (shown(host, "Result"), shown(host, "ExecMainStatus"), stops(host)) == ("success", "0", 2)
        host.reboot()
        until("the server to be ready after its machine has restarted", lambda: ready(user))
        removed(host, user)


def outlived(job: Counting, host: Host, user: Server) -> None:
    """A restart in good order, and one that nobody asked for."""
    for way, restarts in (("restart", 0), ("kill --kill-whom=main --signal=KILL", 1)):
        before = shown(host, "MainPID")
        host.systemctl(*way.split(), UNIT)
        until("another server", partial(is_another, host, user, before))
        assert (shown(host, "NRestarts"), stops(host)) == (str(restarts), 1)
        job.goes_on()


def is_another(host: Host, user: Server, before: str) -> bool:
    return shown(host, "MainPID") not in ("0", before) and ready(user)


def removed(host: Host, user: Server) -> None:
    host.run(PROGRAM, "server", "uninstall")
    assert not ready(user) and shown(host, "LoadState") == "not-found"
    host.run("test", "-s", f"{DATA}/plane.db", "-a", "-s", "/etc/dstack/server.env")
    host.run("id", "dstack-server")
