"""The orphan hunt: what bears our tag at a provider and belongs to nobody is given back.

Nothing should ever be found: every purchase is committed before it is made and its resources are written down one by
one. This looks all the same, because what is missed costs money until somebody reads a bill.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from chalicelib.backends.spi import Backend, Owned
from chalicelib.domain.instances import Instance
from chalicelib.engine.ports import Clock
from chalicelib.errors import BackendError, Gone
from chalicelib.planning.orphans import orphans
from chalicelib.store import keys, nouns
from chalicelib.store.port import Store

log = logging.getLogger(__name__)


class Sweeper:
    def __init__(self, store: Store, clock: Clock, backends: Mapping[str, Backend], *, install_id: str) -> None:
        self._store, self._clock, self._backends, self._install_id = store, clock, backends, install_id

    def run(self) -> list[Owned]:
        """One look at every backend. A backend that fails is told and left to the next look; returns what was given
        back."""
        found: list[Owned] = []
        for name, backend in self._backends.items():
            try:
                for orphan in self._orphans(backend):
                    self._give_back(name, backend, orphan)
                    found.append(orphan)
            except BackendError as error:
                log.warning("the orphan hunt at %s ends early: %s", name, error)
        return found

    def _orphans(self, backend: Backend) -> list[Owned]:
        listed = list(backend.list_owned())  # before the owners are read, or a new one would look like nobody's
        ids = sorted({one.instance_id for one in listed if one.install == self._install_id})
        known = nouns.find_many(self._store, Instance, [keys.instance(id) for id in ids]) if ids else []
        owners = {instance.id: instance for instance in known if instance is not None}
        now, lag = self._clock.now(), backend.facts.visibility_lag
        return orphans(listed, owners, install_id=self._install_id, now=now, lag=lag)

    def _give_back(self, name: str, backend: Backend, orphan: Owned) -> None:
        log.warning("%s %s at %s belongs to nobody: giving it back", orphan.handle.kind, orphan.handle.id, name)
        try:
            backend.terminate(orphan.handle)
        except Gone:
            log.info("%s %s was gone already", orphan.handle.kind, orphan.handle.id)
