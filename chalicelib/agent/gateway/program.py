"""The loop of a gateway's control program.

It asks the control plane what to serve and tells nginx what has changed; every second it looks at what nginx has
counted, and reports it every ten, or at once if somebody waits for a replica. The last word of the control plane is
kept on disk: without the control plane, and after a restart of the machine, the gateway serves what it knew.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Protocol

from ..kernel.link import LinkError
from ..kernel.tasks import read_text, write_atomic
from . import entries
from .buckets import Buckets
from .control import Control, ControlError
from .direct import Direct
from .nginx import Nginx, NginxError
from .relays import GatewayRelays, Order
from .worker_requests import TokenVerdict, WorkerRequests

LOOK = 1.0  # seconds
AGAIN, SELDOM = 1.0, 10.0  # seconds between calls to a control plane that is away: at first, at last
STORED = "word.json"  # the name that the programs of earlier agents gave it
EMPTY: Dict[str, Any] = {"version": "", "services": []}


class Source(Protocol):
    """The control plane (plane.Plane)."""

    def configuration(self, since: str) -> Dict[str, Any]: ...

    def report(self, reports: List[Dict[str, Any]]) -> None: ...

    def streams(self, orders: List[Dict[str, Any]], pin: str) -> None: ...

    def rights(self, token: str, project: str, run: str) -> TokenVerdict: ...


class GatewayProgram:
    def __init__(
        self,
        folder: str,
        nginx: Nginx,
        plane: Source,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._nginx, self._plane, self._log, self._clock = folder, nginx, plane, log, clock
        self._control = Control(nginx.control)
        self._asks = WorkerRequests(nginx.asks, plane.rights, lambda run: self._look_now.set(), log, nginx.group)
        self._orders: "queue.SimpleQueue[List[Order]]" = queue.SimpleQueue()
        self._relays = GatewayRelays(nginx.relays, self._orders.put, nginx.group)
        self._buckets = Buckets()
        self._direct = Direct()
        self._configuration = self._stored()
        self._had: Dict[str, str] = {}  # what nginx was told
        self._lock = threading.Lock()  # around the three above
        self._look_now, self._over = threading.Event(), threading.Event()
        self._gone = False  # the control plane knows this gateway no more

    def run(self) -> bool:
        """Until it is stopped; True if the control plane says that there is no such gateway any more."""
        os.makedirs(os.path.dirname(self._nginx.asks), exist_ok=True)
        self._asks.start()
        self._relays.start()
        self._serve()
        for task in (self._poll, self._report, self._order):
            threading.Thread(target=task, name=task.__name__, daemon=True).start()
        pause = LOOK
        while not self._over.wait(pause):
            if self._nginx.pid():
                self._nginx.cut_log()
                self._try_again()
                pause = LOOK
                continue
            self._log("nginx isn't running; it is started again")
            self._serve()
            pause = min(SELDOM, 2 * pause)
        if self._gone:
            self._nginx.stop()
        return self._gone

    def stop(self) -> None:
        """nginx goes on."""
        self._over.set()
        self._look_now.set()

    # What to serve ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Have nginx running, and serving what is known."""
        try:
            if self._nginx.start():
                self._log("nginx serves %d services" % len(self._configuration["services"]))
            self._direct.look(self._configuration)
            with self._lock:
                self._had = {}
                self._tell(self._configuration, self._control.keys())
        except (NginxError, ControlError) as problem:
            self._log(str(problem))  # tried again at the next look: it isn't running
            self._say("failed", str(problem))
        else:
            self._say("running")

    def _tell(self, configuration: Dict[str, Any], there: List[str]) -> None:
        applied = self._direct.applied(configuration)
        wanted = entries.entries(applied, self._nginx.relays)
        changed = entries.difference(there, self._had, wanted)
        runs = [each["run_id"] for each in configuration["services"]]
        self._buckets.keep(runs, self._control.counts(runs, [])["runs"])
        self._relays.keep(entries.relayed(configuration), entries.direct(applied))
        if changed:
            self._control.set(changed)
        self._had, self._configuration = wanted, configuration

    def take(self, configuration: Dict[str, Any]) -> bool:
        """Serve what the control plane says. False if it makes no sense, or nginx doesn't take it."""
        try:
            self._direct.look(configuration)
            with self._lock:
                self._tell(configuration, list(self._had))
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            self._log("what the control plane says makes no sense, and the last word before counts: %r" % problem)
            return False
        except ControlError as problem:
            self._log(str(problem))
            return False
        write_atomic(self._path(STORED), json.dumps(configuration), durable=True)
        self._log("version %s: %d services" % (configuration.get("version"), len(configuration["services"])))
        return True

    def _try_again(self) -> None:
        """Replicas that nginx reaches by itself from now on, or doesn't any more."""
        if not self._direct.look(self._configuration):
            return
        try:
            with self._lock:
                self._tell(self._configuration, list(self._had))
        except ControlError as problem:
            self._log(str(problem))

    def _poll(self) -> None:
        pause = AGAIN
        while not self._over.is_set():
            began = self._clock()
            try:
                configuration = self._plane.configuration(self._configuration.get("version", ""))
                good = "services" not in configuration or self.take(configuration)
                pause = max(AGAIN, float(configuration.get("ask_in", 0))) if good else min(SELDOM, 2 * pause)
            except LinkError as problem:
                if problem.status == 410:
                    self._log("the control plane knows this gateway no more: %s" % problem)
                    self._gone = True
                    self.stop()
                    return
                self._log("the control plane: %s" % problem)
                pause = min(SELDOM, 2 * pause)
            self._over.wait(max(0.0, began + pause - self._clock()))  # it may have waited itself

    # What was counted ---------------------------------------------------------------------------------------------

    def _report(self) -> None:
        while not self._over.is_set():
            self._look_now.wait(LOOK)
            self._look_now.clear()
            try:
                if self._nginx.pid():
                    self.look(time.time_ns() // 1000)
            except ControlError as problem:
                self._log(str(problem))

    def look(self, now: int) -> None:
        """Take what nginx has counted, and report what is due."""
        with self._lock:
            configuration = self._configuration
            draining = entries.draining(configuration)
            runs = [each["run_id"] for each in configuration["services"]]
            jobs = [job for each in draining.values() for job in each]
            self._buckets.sample(self._control.counts(runs, jobs), draining, now)
            reports = self._buckets.reports(now)
        if not reports:
            return
        try:
            self._plane.report(reports)
        except LinkError as problem:
            self._log("a report isn't taken: %s" % problem)
            with self._lock:
                self._buckets.unsent(reports)

    def _order(self) -> None:
        while not self._over.is_set():
            orders = self._orders.get()
            try:
                self._plane.streams(orders, self._nginx.pin)
            except LinkError as problem:  # the relays ask again for what doesn't come
                self._log("streams can't be asked for: %s" % problem)

    # On disk ------------------------------------------------------------------------------------------------------

    def _stored(self) -> Dict[str, Any]:
        text = read_text(self._path(STORED))
        if text is None:
            return EMPTY
        try:
            configuration: Optional[Dict[str, Any]] = json.loads(text)
            entries.entries(configuration or {}, "")
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            self._log("%s can't be read: %r; the control plane will say it again" % (self._path(STORED), problem))
            return EMPTY
        return configuration or EMPTY

    def _say(self, state: str, message: str = "") -> None:
        """How it is, for this machine's agent, which tells the control plane."""
        write_atomic(self._path("state.json"), json.dumps({"state": state, "message": message}))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)
