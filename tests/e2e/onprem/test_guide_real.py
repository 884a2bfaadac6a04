"""The guide about one's own hosts shows what somebody sees who types it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.e2e.hosts.network import HEAD
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.onprem.lab import lab
from tests.harness import golden
from tests.harness.images import busybox_image
from tests.harness.installed import program
from tests.scenarios.guides import HOSTS, Installed, compare

IMAGE = "busybox:1.37"  # the page's: these hosts can't pull it
WITH_NAMES = 'mount --bind "$0" /etc/hosts && exec "$@"'


@contextmanager
def stage(folder: Path) -> Iterator[Installed]:
    """Hosts by the guide's names: the server finds the head by name, and the head the others."""
    specs = [HostSpec("gpu1"), HostSpec("gpu2")]
    names = folder / "hosts"
    names.write_text(f"127.0.0.1 localhost\n{HEAD} login.lab.example\n")
    named = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", WITH_NAMES, str(names))
    with lab(folder, specs, before=named, command=(str(program()),)) as one:
        known = "".join(f"{host.address} {host.name}\n" for host in one.site.workers)
        one.site.head.run("sh", "-c", "cat >> /etc/hosts", input=known)
        for host in one.site.workers:
            host.import_image(replace(busybox_image(), name=IMAGE))
        home = folder / "home"
        (home / ".ssh").mkdir(parents=True)
        shutil.copy(one.site.key.path, home / ".ssh" / "lab")
        user = Installed(one.server, home, "main")
        user.log_in()
        yield user


def test_the_guide_shows_what_happens(tmp_path: Path) -> None:
    with stage(tmp_path) as one:
        compare(HOSTS, one, renew=golden.WRITING)
