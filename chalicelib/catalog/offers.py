"""The catalogue: what every configured backend sells, as one blob with the time it was taken.

A refresh asks the backends and writes; everybody else reads. A backend that can't answer keeps its last offers, with
their age, because a catalogue that empties itself whenever a provider has a bad minute would end the runs that wait.
Readers parse a snapshot once: the blob names its version first, and a book is kept as long as the version stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson
from pydantic import TypeAdapter

from chalicelib.backends.spi import Backend
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Offer
from chalicelib.engine.ports import Clock
from chalicelib.errors import BackendError
from chalicelib.planning.offers import OfferBook

log = logging.getLogger(__name__)

HEAD = "catalog/head.json"  # {"backends": {name: {"blob", "taken_at", "error"}}}
LOOK_AGAIN: Micros = 30 * SECOND  # how old a reader's copy may be before it asks whether there is a newer one

_OFFERS: TypeAdapter[list[Offer]] = TypeAdapter(list[Offer])


class Blobs(Protocol):
    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, data: bytes) -> None: ...

    def delete(self, name: str) -> None: ...


@dataclass(frozen=True)
class Taken:
    """One backend's offers in the catalogue."""

    blob: str
    taken_at: Micros
    error: str = ""  # why the last refresh brought nothing newer


class StoredCatalog:
    def __init__(self, blobs: Blobs, clock: Clock) -> None:
        self._blobs, self._clock = blobs, clock
        self._lock = threading.Lock()
        self._head: bytes | None = None
        self._looked_at: Micros | None = None
        self._book = OfferBook((), 0)

    def refresh(self, backends: Mapping[str, Backend]) -> dict[str, Taken]:
        """Ask every backend and write what they sell. Backends that aren't configured any more leave the catalogue."""
        before = self.ages()
        after = {name: self._ask(name, backend, before.get(name)) for name, backend in sorted(backends.items())}
        kept = {name: taken for name, taken in after.items() if taken is not None}
        head = {name: {"blob": t.blob, "taken_at": t.taken_at, "error": t.error} for name, t in kept.items()}
        self._blobs.put(HEAD, orjson.dumps({"backends": head}))
        self._looked_at = None
        for taken in before.values():
            if taken.blob not in {t.blob for t in kept.values()}:
                self._blobs.delete(taken.blob)
        return kept

    def book(self, project_id: str) -> OfferBook:
        """Everything on sale, as of the last refresh. Every project may buy everything that is configured."""
        now = self._clock.now()
        with self._lock:
            if self._looked_at is None or not 0 <= now - self._looked_at < LOOK_AGAIN:
                head = self._blobs.get(HEAD)
                if head != self._head:
                    self._book, self._head = self._read(head), head
                self._looked_at = now
            return self._book

    def ages(self) -> dict[str, Taken]:
        """When each backend's offers were taken."""
        head = self._blobs.get(HEAD)
        return {} if head is None else {name: Taken(**each) for name, each in orjson.loads(head)["backends"].items()}

    def _ask(self, name: str, backend: Backend, before: Taken | None) -> Taken | None:
        now = self._clock.now()
        try:
            offers: Sequence[Offer] = backend.offers()
        except BackendError as error:
            log.warning("the offers of %s stay as they are: %s", name, error)
            return None if before is None else Taken(before.blob, before.taken_at, str(error))
        blob = f"catalog/{name}-{now}.json"
        self._blobs.put(blob, _OFFERS.dump_json(list(offers), exclude_defaults=True))
        return Taken(blob, now)

    def _read(self, head: bytes | None) -> OfferBook:
        taken = [] if head is None else [Taken(**each) for each in orjson.loads(head)["backends"].values()]
        offers: list[Offer] = []
        for each in taken:
            body = self._blobs.get(each.blob)
            if body is None:
                log.warning("the catalogue names %s, which isn't there: refreshed meanwhile?", each.blob)
                continue
            offers += _OFFERS.validate_json(body)
        return OfferBook(offers, min((each.taken_at for each in taken), default=0))
