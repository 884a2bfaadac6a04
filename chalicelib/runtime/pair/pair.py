"""A server's part in its pair, from its start to its end."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from chalicelib.errors import Fenced, Refused
from chalicelib.runtime.backup import INSTALL_KEY, PAIR
from chalicelib.runtime.backup_keys import check_apart, key_source
from chalicelib.runtime.backup_places import FILE, S3, place_of
from chalicelib.runtime.clock import random_id
from chalicelib.runtime.data_folder import locked, private_file
from chalicelib.runtime.pair.copies import Copier, CopyAtHand, Spare
from chalicelib.runtime.pair.places import BucketLease, FolderLease, LeasePlace
from chalicelib.runtime.pair.protocol import RENEWALS, Found, Holding, Watch, first, takeover
from chalicelib.runtime.pair.tenure import Tenure, asked, elapsed
from chalicelib.runtime.s3_client import s3_client
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store.backups import KeySource, opened
from chalicelib.store.blobs import Blobs
from chalicelib.store.disk import disk_error

log = logging.getLogger(__name__)

KNOWN = "lease"  # in the folder of the pair: the last lease that this server held
LEASE_PATIENCE = 3.0  # seconds for one request about the lease: a renewal that waits for longer is of no use


class Pair:
    """What this server knows of it before it decides."""

    def __init__(
        self,
        settings: ServerSettings,
        leases: LeasePlace,
        blobs: Blobs,
        source: KeySource,
        clock: Callable[[], float] = elapsed,
        boot: str = "",
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`boot`: which start of this machine it is."""
        self.settings, self.leases, self._blobs, self._source, self.clock = settings, leases, blobs, source, clock
        self.folder, self.lasts = settings.data_dir, float(settings.pair.lease)
        self.name = socket.gethostname()
        self._id, self._pause = _id(self.folder / PAIR), pause
        self.owner = f"{self._id} {boot}"

    def begin(self) -> Tenure | None:
        """The tenure of a server whose data folder has the control plane; None for one that stands by."""
        found, now = self.leases.read(), self.clock()
        if not has_plane(self.folder):
            return None
        self._check_known(found)
        if found is None:
            step = first(now, id=random_id(), owner=self.owner, name=self.name, lasts=self.lasts)
        else:
            found = self._own(found)
            step = takeover(found, self.clock(), owner=self.owner, name=self.name, lasts=self.lasts)
        held = asked(step, self.leases)
        if held is None:
            raise Fenced("Another server took the lease at the same moment.", hint="Start this one again.")
        return self.tenure(held)

    def _check_known(self, found: Found | None) -> None:
        """Raises Fenced in a place that doesn't know what this server does: a folder whose disk isn't mounted, or whose
        disk was set back. Another server may decide in the right one, and agents ignore epochs that go back."""
        path = self.folder / PAIR / KNOWN
        lease, _, number = (path.read_text() if path.exists() else "").partition(" ")
        same = found is not None and found.lease.id == lease
        if not lease or (same and found is not None and found.lease.epoch >= int(number)):
            return
        there = "no lease" if found is None else f"{'the' if same else 'another'} lease of epoch {found.lease.epoch}"
        raise Fenced(
            f"{self.settings.pair_place} has {there}, but this server has held that of epoch {number}: another server "
            "may decide.",
            hint="Mount the place, or name the right one. For a new pair, make sure that no other server decides, "
            f"delete {path} and what is in {self.settings.pair_place}, and start again.",
        )

    def _own(self, found: Found) -> Found:
        """The lease, if it is that of this data folder and nobody renews it. On the machine where it was taken, and
        since its last start, the folder's lock says so. Elsewhere the folder may be a copy of one that is in use, so
        it is seen unchanged first, as another server's."""
        watch, seen = Watch(self.owner), found.version
        while found.lease.owner.partition(" ")[0] == self._id:
            watch.saw(found, self.clock())
            left = watch.left(self.clock())
            if left <= 0:
                return found
            if found.version != seen:
                raise Fenced(
                    f"A server decides on a copy of {self.folder} (epoch {found.lease.epoch}, {found.lease.name}).",
                    hint="Stop that one. Or start this one on an empty data folder, so that it stands by.",
                )
            log.info("this machine has started since it took the lease, and waits %.0f s more for another server", left)
            self._pause(min(left, self.lasts / RENEWALS))
            there = self.leases.read()
            if there is None:
                raise Fenced("The lease of this server's pair is gone.", hint="Start this server again.")
            found = there
        raise Fenced(
            f"{found.lease.name} has taken over (epoch {found.lease.epoch}), and {self.folder} is older than what is "
            "there.",
            hint="Keep what you need of it, move the folder away, and start again: this server then stands by.",
        )

    def tenure(self, held: Holding) -> Tenure:
        path = self.folder / PAIR / KNOWN
        try:
            private_file(path, f"{held.epoch.lease} {held.epoch.number}")
        except OSError as error:
            raise disk_error(path, error) from error
        return Tenure(self.leases, held, self.clock)

    def copier(self, tenure: Tenure) -> Copier:
        return Copier(self.folder, opened(self._blobs, self._source, create=True), tenure, self.settings.pair.every)

    def spare(self) -> Spare:
        """Raises Refused while nobody has made a copy."""
        at_hand = CopyAtHand(self._blobs, self.folder / PAIR / "copy")
        return Spare(opened(at_hand, self._source, create=False), at_hand)


def has_plane(folder: Path) -> bool:
    return (folder / INSTALL_KEY).is_file()


def _id(folder: Path) -> str:
    path = folder / "id"
    if not path.exists():
        private_file(path, random_id())
    return path.read_text().strip()


def _boot() -> str:
    """Differs after each start of this machine, and where the system doesn't say, of this process."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else random_id()


@contextmanager
def paired(settings: ServerSettings, say: Callable[[str], object]) -> Iterator[Pair]:
    """The pair of the settings. One server of this folder belongs to it at a time. Raises Refused for settings with
    which no other server could take over."""
    check(settings)
    folder, place = settings.data_dir, settings.pair_place
    with locked(folder / PAIR):
        source, news = key_source(settings.backups, folder=folder if has_plane(folder) else None)
        if news:
            say(news)
        with place_of(place, write=False) as blobs:
            leases: LeasePlace = FolderLease(Path(place).expanduser())
            if place.startswith(S3):
                bucket, _, prefix = place.removeprefix(S3).partition("/")
                leases = BucketLease(bucket, prefix, partial(s3_client, "Leases", patience=LEASE_PATIENCE))
            leases.check()
            yield Pair(settings, leases, blobs, source, boot=_boot())


def check(settings: ServerSettings) -> None:
    place = settings.pair_place
    if place.endswith(FILE):
        raise Refused(
            f"--pair is {place}, a file.", hint="Name a folder that both servers reach, or s3://bucket/prefix."
        )
    check_apart(place, settings.data_dir)
    if place.rstrip("/") == settings.backups.to.rstrip("/"):
        raise Refused(
            f"The pair and the backups are both in {place}, and copies for a pair are deleted after an hour.",
            hint="Give each a place of its own.",
        )
    if not settings.public_url:
        raise Refused(
            "A server of a pair needs an address that leads to whichever decides.",
            hint="Add it on both machines, as in --public-url https://dstack.example.com.",
        )
    if settings.local_fleet:
        raise Refused(
            "A server of a pair has no jobs on its own machine: the other one couldn't reach them.",
            hint="Add --no-local-fleet.",
        )
    if settings.tls_acme:
        raise Refused(
            "The server that stands by could get no certificate: the authority asks the one that decides.",
            hint="End TLS at the balancer, or give both the same files with --tls-cert and --tls-key.",
        )
