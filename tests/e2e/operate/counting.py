"""A job that counts on a host, while the installed server that it belongs to goes and comes."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.hosts.host import Host
from tests.e2e.hosts.network import Namespace
from tests.e2e.hosts.site import Site
from tests.e2e.onprem.lab import Lab
from tests.harness.images import busybox_image
from tests.harness.server import HttpError, Server, until
from tests.runtime.live import log_of, run_of, wait_for

# A line at a time until it is told to end, so that a line that is lost or doubled shows.
COUNT = "i=0; while [ ! -e /tmp/go ]; do i=$((i+1)); echo $i; sleep 0.1; done; echo end"
NAME, FLEET = "count", "here"


def user_at(place: Namespace, folder: Path, url: str) -> Server:
    """Who calls a server from there that something else starts."""
    folder.mkdir(exist_ok=True)
    return Server(folder, url=url, network=place.path, opener=place.opener())


def ready(user: Server) -> bool:
    try:
        return bool(user.call("/readyz", method="GET")["ready"])
    except (OSError, HttpError):
        return False


class Counting:
    def __init__(self, site: Site, host: Host, user: Server, token: str) -> None:
        """The host joins the server's only fleet, and the job starts on it."""
        self._host, self._user, self._lab = host, user, Lab(site, user)
        user.token = token
        user.cli("project", "add", "--name", "main", "--url", user.url, "--token", token, "-y")
        host.import_image(busybox_image())
        self._lab.apply(self._lab.fleet(FLEET, [host], proxy_jump=None))
        self._lab.apply(self._lab.task(NAME, COUNT, FLEET), "-d")
        until("the job's first lines", lambda: len(self._lines()) > 3)

    def _lines(self) -> list[str]:
        """After the greeting of busybox's shell."""
        return log_of(self._user, NAME).partition("built-in commands.")[2].split()

    def goes_on(self) -> None:
        before = len(self._lines())
        until("the job's next lines", lambda: len(self._lines()) > before + 3)
        assert run_of(self._user, NAME)["status"] == "running"

    def end(self) -> None:
        """With all that it has said."""
        (container,) = self._host.docker("ps", "--quiet", "--filter", "label=dstack.task").stdout.split()
        self._host.docker("exec", container, "/bin/sh", "-c", ": > /tmp/go")
        wait_for(self._user, NAME, "done")
        found = self._lines()
        assert found == [*map(str, range(1, len(found))), "end"]

    def leave(self) -> None:
        """The host is nobody's again."""
        self._lab.delete(FLEET)
