"""`dstack server install` on a host that systemd has booted, from the wheel to its removal, while a job runs there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.e2e.hosts.host import Host
from tests.e2e.hosts.site import or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.onprem.lab import Lab
from tests.harness import installed
from tests.harness.images import busybox_image
from tests.harness.server import HttpError, Server, until
from tests.runtime.live import log_of, run_of, wait_for

pytestmark = pytest.mark.slow

UNIT, PROGRAM = "dstack-server", "/opt/dstack/bin/dstack"
DATA = "/var/lib/dstack-server"
CAP_NET_BIND_SERVICE = 10
# A line at a time until it is told to end, so that a line that is lost or doubled shows.
COUNT = "i=0; while [ ! -e /tmp/go ]; do i=$((i+1)); echo $i; sleep 0.1; done; echo end"


@contextmanager
def booted(folder: Path) -> Iterator[Lab]:
    """A host with the package in /opt/dstack, and a user who calls the server that will be installed there."""
    with or_skipped([HostSpec("w1")]) as site:
        (host,) = site.workers
        host.import_image(busybox_image())
        bring_package(host)
        inside = host.namespace
        user = Server(folder, url="http://127.0.0.1:3000", network=inside.path, opener=inside.opener())
        user.home.mkdir(exist_ok=True)
        yield Lab(site, user)


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
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, site / file)
    shutil.copy(wheel, host.root / "srv")
    host.run("/opt/dstack/bin/python", "-m", "pip", "install", "--no-index", f"/srv/{wheel.name}[server]")


def shown(host: Host, name: str) -> str:
    return host.systemctl("show", f"--property={name}", "--value", UNIT)


def ready(user: Server) -> bool:
    try:
        return bool(user.call("/readyz", method="GET")["ready"])
    except (OSError, HttpError):
        return False


def stops(host: Host) -> int:
    """How often it has said that it has stopped."""
    host.run("journalctl", "--sync")
    return host.run("journalctl", "--unit", UNIT, "--output=cat").stdout.count('"The server has stopped"')


def counted(user: Server) -> list[str]:
    """What the job has said, after the greeting of busybox's shell."""
    return log_of(user, "count").partition("built-in commands.")[2].split()


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
    with booted(tmp_path / "home") as site:
        (host,), user = site.site.workers, site.server
        host.run(PROGRAM, "server", "install")
        until("the server to be ready", lambda: ready(user))
        user.token = host.run("cat", f"{DATA}/admin.token").stdout.strip()
        user.cli("project", "add", "--name", "main", "--url", user.url, "--token", user.token, "-y")
        site.apply(site.fleet("here", [host], proxy_jump=None))
        site.apply(site.task("count", COUNT, "here"), "-d")
        until("its first lines", lambda: "3" in counted(user))
        confined(host)
        outlived(site, host)
        (container,) = host.docker("ps", "--quiet", "--filter", "label=dstack.task").stdout.split()
        host.docker("exec", container, "/bin/sh", "-c", ": > /tmp/go")
        wait_for(user, "count", "done")
        found = counted(user)
        assert found == [*map(str, range(1, len(found))), "end"]
        host.systemctl("stop", UNIT)
        assert (shown(host, "Result"), shown(host, "ExecMainStatus"), stops(host)) == ("success", "0", 2)
        host.reboot()
        until("the server to be ready after its machine has restarted", lambda: ready(user))
        removed(host, user)


def outlived(site: Lab, host: Host) -> None:
    """A restart in good order, and one that nobody asked for."""
    user = site.server
    for way, restarts in (("restart", 0), ("kill --kill-whom=main --signal=KILL", 1)):
        before, pid = counted(user), shown(host, "MainPID")
        host.systemctl(*way.split(), UNIT)
        until("another server", partial(is_another, host, user, pid))
        assert (shown(host, "NRestarts"), stops(host)) == (str(restarts), 1)
        until("the job's next lines", partial(has_more, user, before))
        assert run_of(user, "count")["status"] == "running"


def is_another(host: Host, user: Server, before: str) -> bool:
    return shown(host, "MainPID") not in ("0", before) and ready(user)


def has_more(user: Server, before: list[str]) -> bool:
    return len(counted(user)) > len(before) + 3


def removed(host: Host, user: Server) -> None:
    host.run(PROGRAM, "server", "uninstall")
    assert not ready(user) and shown(host, "LoadState") == "not-found"
    host.run("test", "-s", f"{DATA}/plane.db", "-a", "-s", "/etc/dstack/server.env")
    host.run("id", "dstack-server")
