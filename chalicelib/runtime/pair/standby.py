"""The server that doesn't decide: it keeps a copy at hand, answers why it isn't ready, and takes over if it must."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from chalicelib.api import dispatch
from chalicelib.api.dispatch import Reply, Request
from chalicelib.domain.leases import Lease
from chalicelib.errors import DstackError, Fenced
from chalicelib.runtime.migration.signpost import JSON, Answers
from chalicelib.runtime.pair.copies import Spare
from chalicelib.runtime.pair.pair import Pair, has_plane
from chalicelib.runtime.pair.protocol import RENEWALS, Watch, takeover
from chalicelib.runtime.pair.tenure import HINT, Tenure, asked
from chalicelib.runtime.probes import ALIVE, READY
from chalicelib.runtime.ticker import Ticker
from chalicelib.runtime.web import EntranceServer

if TYPE_CHECKING:
    from chalicelib.runtime.entrances import Entrances
    from chalicelib.runtime.trusted_proxies import TrustedProxies

log = logging.getLogger(__name__)

NOBODY = "No server of the pair has decided yet: start the first one on the data folder that has the control plane."


class Standby:
    def __init__(self, pair: Pair, taken: Callable[[], None] = lambda: None) -> None:
        self._pair, self._taken = pair, taken
        self._watch, self._spare = Watch(pair.owner), None
        self.why, self.tenure = NOBODY, None
        self.whole = False  # the copy that is taken over has every commit

    _spare: Spare | None
    tenure: Tenure | None

    def turn(self) -> None:
        """Look at the lease, have its copy here, and take it if the time has come."""
        if self.tenure is not None:
            return
        level = logging.INFO
        try:
            why = self._turn()
        except DstackError as error:
            why, level = f"It couldn't take over: {error}", logging.WARNING
        if why != self.why:
            log.log(level, "stands by: %s", why)
            self.why = why

    def _turn(self) -> str:
        found = self._pair.leases.read()
        self._watch.saw(found, self._pair.clock())
        if found is None:
            return NOBODY
        if not found.lease.moment:
            return f"{_deciding(found.lease)}, and has made no copy yet."
        self._fetch(found.lease.moment)
        if self._watch.left(self._pair.clock()) > 0:
            return f"{_deciding(found.lease)}."
        pair = self._pair
        step = takeover(found, pair.clock(), owner=pair.owner, name=pair.name, lasts=pair.lasts)
        held = asked(step, pair.leases)
        if held is None:
            return "The lease was renewed at the last moment."
        self.whole, self.tenure = found.lease.rests, pair.tenure(held)
        log.warning("takes over from %s, from the copy of %s", found.lease.name, found.lease.moment)
        self._taken()
        return f"It takes over from {found.lease.name}."

    def _fetch(self, moment: str) -> None:
        if self._spare is None:
            self._spare = self._pair.spare()
        if self._spare.moment is None or self._spare.moment.name != moment:
            self._spare.fetch(moment)

    def restore(self) -> None:
        """Make the data folder, of a server that has taken over. Its lease is renewed meanwhile."""
        assert self.tenure is not None and self._spare is not None, "it has taken over"
        if not has_plane(self._pair.folder):
            self._spare.restore(self.tenure.moment, self._pair.folder, whole=self.whole)
        self.tenure.check()

    def reply(self, request: Request) -> Reply:
        seen = self._watch.seen
        if request.path == ALIVE:
            epoch = 0 if seen is None else seen.lease.epoch
            return Reply(200, JSON, orjson.dumps({"alive": True, "role": "stands by", "epoch": epoch}))
        if request.path == READY:
            check = {"name": "lease", "ready": False, "why": f"This server stands by. {self.why}"}
            return Reply(503, JSON, orjson.dumps({"ready": False, "checks": [check]}))
        refused = Fenced(f"This server stands by. {self.why}", hint=HINT)
        return dispatch.failure(refused, request.path, request.path)


def _deciding(lease: Lease) -> str:
    what = "has stopped" if lease.rests else "decides"
    return f"{lease.name} {what} (epoch {lease.epoch})"


def stand_by(pair: Pair, entrances: Entrances, proxies: TrustedProxies) -> Standby:
    """Serve until a signal comes, or until this server has taken over: then there is a tenure."""
    server: EntranceServer
    standby = Standby(pair, taken=lambda: threading.Thread(target=server.leave, daemon=True).start())
    server = EntranceServer(Answers(standby.reply), entrances.all, proxies=proxies)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again once it has drained
    watching = Ticker(pair.lasts / RENEWALS, standby.turn, at_once=True)
    print("This server stands by: it takes over if the other one of its pair can't decide any more", flush=True)
    try:
        watching.start()
        if entrances.certificate is not None:
            entrances.certificate.start()
        server.run(sockets=[each.listener for each in entrances.all])
    finally:
        watching.stop()
        if entrances.certificate is not None:
            entrances.certificate.stop()
    return standby
