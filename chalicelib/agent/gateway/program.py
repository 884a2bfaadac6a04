"""The loop of a gateway's control program.

It polls the control plane for the gateway's configuration and sends the changes to nginx. Every second it reads nginx's
counts, and reports them every ten seconds, or at once if a request waits for a replica. The latest configuration is on
disk, so that the gateway also serves without the control plane and after a restart of the machine.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Protocol, Union, cast

from ..kernel.link import LinkError
from ..kernel.tasks import read_text, write_atomic
from . import entries
from .buckets import Buckets
from .control import Control, ControlError
from .direct import DirectRoutes
from .nginx import Nginx, NginxError
from .relays import GatewayRelays
from .worker_requests import TokenVerdict, WorkerRequests

if TYPE_CHECKING:
    from ...contract.agent_gateway import (
        GatewayConfiguration,
        GatewayStream,
        NewConfiguration,
        SameConfiguration,
        TrafficReport,
    )

CHECK_EVERY = 1.0  # seconds
RETRY_FIRST, RETRY_MOST = 1.0, 10.0  # seconds between polls of an unreachable control plane: at first, at most
STORED = "word.json"  # the name that the programs of earlier agents gave it
EMPTY: "GatewayConfiguration" = {
    "version": "",
    "services": [],
    "model_hosts": {},
    "certificates": {},
    "challenges": {},
}
UNREACHED = "no stream from the hosts of its services' replicas has come: can they call the gateway's address?"


class Source(Protocol):
    """The control plane (`plane.PlaneClient`)."""

    def configuration(self, since: str) -> "Union[NewConfiguration, SameConfiguration]": ...

    def report(self, reports: List[TrafficReport]) -> None: ...

    def streams(self, orders: List[GatewayStream], pin: str) -> None: ...

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
        self._worker_requests = WorkerRequests(
            nginx.worker_socket, plane.rights, lambda run: self._report_now.set(), log, nginx.group
        )
        self._orders: "queue.SimpleQueue[List[GatewayStream]]" = queue.SimpleQueue()
        self._relays = GatewayRelays(nginx.relays, self._orders.put, nginx.group)
        self._buckets = Buckets()
        self._direct = DirectRoutes()
        self._configuration = self._stored()
        self._entries: Dict[str, str] = {}  # those of nginx, as far as known
        self._lock = threading.Lock()  # around the three above
        self._report_now, self._over = threading.Event(), threading.Event()
        self._orders_pass, self._noted = False, ""  # the last orders were passed on; the message of its state
        self._deleted = False  # the control plane no longer knows this gateway

    def run(self) -> bool:
        """Run until stopped, or until the gateway is deleted: then nginx is stopped and True is returned."""
        os.makedirs(os.path.dirname(self._nginx.worker_socket), exist_ok=True)
        self._worker_requests.start()
        self._relays.start()
        self._serve()
        for task in (self._poll, self._report, self._order):
            threading.Thread(target=task, name=task.__name__, daemon=True).start()
        pause = CHECK_EVERY
        while not self._over.wait(pause):
            if self._nginx.pid():
                self._nginx.cut_log()
                self._refresh_routes()
                self._note_streams()
                pause = CHECK_EVERY
                continue
            self._log("nginx isn't running; it is started again")
            self._serve()
            pause = min(RETRY_MOST, 2 * pause)
        if self._deleted:
            self._nginx.stop()
        return self._deleted

    def stop(self) -> None:
        """End the loop; nginx goes on."""
        self._over.set()
        self._report_now.set()

    # Configuration ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Start nginx if necessary, and set all its entries."""
        try:
            if self._nginx.start():
                self._log("nginx serves %d services" % len(self._configuration["services"]))
            self._direct.refresh(self._configuration)
            with self._lock:
                self._entries = {}
                self._apply(self._configuration, self._control.keys())
        except (NginxError, ControlError) as problem:
            self._log(str(problem))  # retried at the next check, which finds that nginx isn't running
            self._write_state("failed", str(problem))
        else:
            self._noted = ""
            self._write_state("running")

    def _apply(self, configuration: GatewayConfiguration, present: List[str]) -> None:
        """Send nginx the entries that differ. `present`: the keys of those that it has."""
        routed = self._direct.with_addresses(configuration)
        wanted = entries.entries(routed, self._nginx.relays)
        changed = entries.difference(present, self._entries, wanted)
        runs = [each["run_id"] for each in configuration["services"]]
        self._buckets.set_services(runs, self._control.counts(runs, [])["runs"])
        self._relays.set_replicas(entries.relayed(configuration), entries.direct(routed))
        if changed:
            self._control.set(changed)
        self._entries, self._configuration = wanted, configuration

    def take(self, configuration: GatewayConfiguration) -> bool:
        """Serve this configuration. False if it makes no sense, or nginx refuses it."""
        try:
            self._direct.refresh(configuration)
            with self._lock:
                self._apply(configuration, list(self._entries))
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            self._log("the control plane's configuration makes no sense, so the one before stays: %r" % problem)
            return False
        except ControlError as problem:
            self._log(str(problem))
            return False
        write_atomic(self._path(STORED), json.dumps(configuration), durable=True)
        self._log("version %s: %d services" % (configuration.get("version"), len(configuration["services"])))
        return True

    def _refresh_routes(self) -> None:
        """Try the direct routes to replicas, and send nginx the changes."""
        if not self._direct.refresh(self._configuration):
            return
        try:
            with self._lock:
                self._apply(self._configuration, list(self._entries))
        except ControlError as problem:
            self._log(str(problem))

    def _note_streams(self) -> None:
        """Say that no host reaches the gateway, as long as that is so and the hosts get its orders."""
        message = UNREACHED if self._relays.unreached and self._orders_pass else ""
        if message != self._noted:
            self._noted = message
            self._write_state("running", message)

    def _poll(self) -> None:
        pause = RETRY_FIRST
        while not self._over.is_set():
            began = self._clock()
            try:
                configuration = self._plane.configuration(self._configuration.get("version", ""))
                good = "services" not in configuration or self.take(cast("NewConfiguration", configuration))
                pause = max(RETRY_FIRST, float(configuration.get("ask_in", 0))) if good else min(RETRY_MOST, 2 * pause)
            except LinkError as problem:
                if problem.status == 410:
                    self._log("the control plane no longer knows this gateway: %s" % problem)
                    self._deleted = True
                    self.stop()
                    return
                self._log("the control plane: %s" % problem)
                pause = min(RETRY_MOST, 2 * pause)
            self._over.wait(max(0.0, began + pause - self._clock()))  # the call itself may have taken that long

    # Traffic ------------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        while not self._over.is_set():
            self._report_now.wait(CHECK_EVERY)
            self._report_now.clear()
            try:
                if self._nginx.pid():
                    self.report_traffic(time.time_ns() // 1000)
            except ControlError as problem:
                self._log(str(problem))

    def report_traffic(self, now: int) -> None:
        """Read nginx's counts, and send the reports that are due."""
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
            self._log("a report isn't accepted: %s" % problem)
            with self._lock:
                self._buckets.mark_unsent(reports)

    def _order(self) -> None:
        while not self._over.is_set():
            orders = self._orders.get()
            try:
                self._plane.streams(orders, self._nginx.pin)
                self._orders_pass = True
            except LinkError as problem:  # the relays repeat orders for streams that don't come
                self._orders_pass = False
                self._log("streams can't be ordered: %s" % problem)

    # On disk ------------------------------------------------------------------------------------------------------

    def _stored(self) -> GatewayConfiguration:
        text = read_text(self._path(STORED))
        if text is None:
            return EMPTY
        try:
            configuration: Optional[GatewayConfiguration] = json.loads(text)
            entries.entries(configuration or EMPTY, "")
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            self._log(
                "%s can't be read: %r; the control plane will send the configuration again"
                % (self._path(STORED), problem)
            )
            return EMPTY
        return configuration or EMPTY

    def _write_state(self, state: str, message: str = "") -> None:
        """Write the gateway's state for this machine's agent, which reports it to the control plane."""
        write_atomic(self._path("state.json"), json.dumps({"state": state, "message": message}))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)
