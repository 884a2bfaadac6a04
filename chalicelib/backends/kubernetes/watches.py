"""Watches: one connection for each context, over which the API server reports every change of our pods.

A context is watched once it has a pod of ours, which is found out when watching begins, by one call for each.

A watch lists the pods, and then follows from the list's version. When it ends it goes on from the last version that it
has seen; when the server has forgotten that version (410), or there are too many pods to remember, it lists anew. While
it is cut, or forbidden, nothing is known, and pods are listed when they are described.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.regions import everywhere
from chalicelib.backends.kubernetes.client import Clusters, LineStream
from chalicelib.backends.kubernetes.states import outlook
from chalicelib.backends.spi import Machine, MachineChange
from chalicelib.errors import BackendError, Transient

log = logging.getLogger(__name__)

Body = dict[str, Any]
Changed = Callable[[Sequence[MachineChange]], None]
INSTANCE, INSTALL = "dstack-instance", "dstack-install"  # labels of pods
WATCH_SECONDS = 300  # seconds, after which the server ends a watch, and we begin the next
SILENT_SECONDS = 90.0  # seconds: the server says something once a minute, or else the connection is taken for cut
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two watches, while they fail or end at once
STEADY_SECONDS = 5.0  # seconds after which a watch that ends is followed by another without a pause
MOST_WATCHES = 256  # of a process, by all its accounts: each has a thread; pods of other contexts are listed
MOST_PODS, MOST_BYTES = 20_000, 64 << 20  # that are remembered for a context
STOPPED_WITHIN = 1.0  # seconds, by all together: a connection that is being made isn't waited for
REPORTED = 2  # failures in a row
TOO_MUCH = "TooMuch"  # to remember
LIST_ANEW = ("Expired", "Gone", TOO_MUCH)


class Slots:
    """How many watches there may be at once."""

    def __init__(self, most: int) -> None:
        self._most, self._left, self._lock = most, most, threading.Lock()

    def take(self, region: str) -> bool:
        with self._lock:
            if self._left == 0:
                log.debug("%s isn't watched: %s contexts are", region, self._most)
                return False
            self._left -= 1
            return True

    def give_back(self) -> None:
        with self._lock:
            self._left += 1


_SLOTS = Slots(MOST_WATCHES)


class ContextWatches:
    """Those of all contexts. A context is watched from when one of its pods is found, created, described or listed."""

    def __init__(
        self,
        clusters: Clusters,
        *,
        silence: float = SILENT_SECONDS,
        pause: float = FIRST_PAUSE,
        steady: float = STEADY_SECONDS,
        most_bytes: int = MOST_BYTES,
        slots: Slots = _SLOTS,
    ) -> None:
        self._clusters, self._silence, self._pause, self._steady = clusters, silence, pause, steady
        self._lock, self._most_bytes, self._slots = threading.Lock(), most_bytes, slots
        self._changed: Changed | None = None
        self._selector = INSTANCE
        self._found: dict[str, PodWatch] = {}
        self._finder: threading.Thread | None = None

    def begin(self, changed: Changed, install: str) -> Callable[[], None]:
        with self._lock:
            self._changed, self._selector = changed, f"{INSTANCE},{INSTALL}={install}"
        self._finder = threading.Thread(target=self._find, name="contexts with pods", daemon=True)
        self._finder.start()
        return self.end

    def found(self) -> None:
        """Wait until the contexts that have pods are known."""
        if self._finder is not None:
            self._finder.join()

    def _find(self) -> None:
        """Begins the watches of contexts that have pods already."""

        def find(region: str) -> None:
            try:
                if self._clusters.any(region, pods_path(self._clusters, region), labelSelector=self._selector):
                    self.pods(region)
            except BackendError as error:  # it is watched once it answers
                log.debug("the pods of %s aren't known yet: %s", region, error)

        everywhere(self._clusters.regions, find)

    def pods(self, region: str) -> Mapping[str, Body] | None:
        """The pods of a context's namespace by name, as they were a moment ago; None: unknown."""
        watch = self._found.get(region)
        if watch is None and self._changed is not None:
            watch = self._watched(region)
        return watch.pods if watch is not None else None

    def _watched(self, region: str) -> PodWatch | None:
        with self._lock:
            if region not in self._found and self._changed is not None and self._slots.take(region):
                watch = PodWatch(
                    self._clusters,
                    region,
                    self._changed,
                    self._selector,
                    ended=self._slots.give_back,
                    silence=self._silence,
                    pause=self._pause,
                    steady=self._steady,
                    most_bytes=self._most_bytes,
                )
                self._found[region] = watch
                watch.start()
            return self._found.get(region)

    def end(self) -> None:
        with self._lock:
            found, self._found, self._changed = self._found, {}, None
        for watch in found.values():
            watch.stop()
        deadline = time.monotonic() + STOPPED_WITHIN
        for watch in found.values():
            watch.join(max(0.0, deadline - time.monotonic()))


def pods_path(clusters: Clusters, region: str) -> tuple[str, ...]:
    return ("api", "v1", "namespaces", clusters.cluster(region).namespace, "pods")


class PodWatch:
    """The watch of one context, on a thread of its own."""

    def __init__(
        self,
        clusters: Clusters,
        region: str,
        changed: Changed,
        selector: str,
        *,
        ended: Callable[[], None],
        silence: float,
        pause: float,
        steady: float,
        most_bytes: int,
    ) -> None:
        self._clusters, self._region, self._changed, self._selector = clusters, region, changed, selector
        self._ended = ended
        self._silence, self._first_pause, self._steady = silence, pause, steady
        self._path = pods_path(clusters, region)
        self._pods: dict[str, Body] = {}
        self._outlooks: dict[str, object] = {}
        self._sizes: dict[str, int] = {}
        self._bytes, self._most_bytes = 0, most_bytes
        self._opened: float | None = None
        self._current, self._version, self._failures = False, "", 0
        self._stopping, self._lock = threading.Event(), threading.Lock()
        self._stream: LineStream | None = None
        self._thread = threading.Thread(target=self._work, name=f"watch of {region}", daemon=True)

    @property
    def pods(self) -> Mapping[str, Body] | None:
        return self._pods if self._current else None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Doesn't wait."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.end()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _work(self) -> None:
        try:
            self._go_on()
        finally:
            self._ended()

    def _go_on(self) -> None:
        pause = self._first_pause
        while not self._stopping.is_set():
            self._opened, has_ended, failure = None, False, None
            try:
                self._follow()
                has_ended = True
            except BackendError as error:
                failure = error
            finally:
                self._current = False
            if is_steady := self._opened is not None and time.monotonic() - self._opened >= self._steady:
                pause = self._first_pause
                self._works()
            if failure is not None:
                self._failed(failure)
            if not (has_ended and is_steady):
                self._stopping.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)

    def _failed(self, error: BackendError) -> None:
        """Once is no news: connections are cut now and then."""
        if error.provider_code in LIST_ANEW:
            self._version = ""
        self._failures += 1
        if self._failures == REPORTED and not self._stopping.is_set():
            log.warning("the pods of %s are listed, because they can't be watched: %s", self._region, error)

    def _works(self) -> None:
        if self._failures >= REPORTED:
            log.info("the pods of %s are watched again", self._region)
        self._failures = 0

    # --- one connection -----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Until it ends. Raises what ends it otherwise."""
        if not self._version:
            self._list()
        query: dict[str, str | int] = {
            "watch": "true",
            "labelSelector": self._selector,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        }
        stream = self._clusters.stream(self._region, self._path, query, self._silence)
        try:
            with self._lock:
                if self._stopping.is_set():
                    return
                self._stream = stream
            self._current, self._opened = True, time.monotonic()
            for line in stream:
                self._apply(line)
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _list(self) -> None:
        items, version = self._clusters.listing(self._region, self._path, labelSelector=self._selector)
        if not version:
            raise Transient(f"The list of pods in {self._region} has no version.")
        before, self._pods = self._pods, {}
        self._sizes, self._bytes = {}, 0
        known, self._outlooks = self._outlooks, {}
        with self._well_formed():
            changes = [change for body in items if (change := self._put(body, known))]
        changes += [_change(body, gone=True) for name, body in before.items() if name not in self._pods]
        self._version = version
        self._report(changes)

    def _apply(self, line: bytes) -> None:
        with self._well_formed():
            event = orjson.loads(line)
            kind, body = event["type"], event["object"]
            if kind == "ERROR":
                raise self._refusal(body)
            version, changes = str(body["metadata"]["resourceVersion"]), list(self._changes(kind, body))
        self._version = version
        self._works()
        self._report(changes)

    @contextmanager
    def _well_formed(self) -> Iterator[None]:
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Transient(f"The watch of {self._region} reports what no API server has.") from None

    def _changes(self, kind: str, body: Body) -> Iterator[MachineChange]:
        if kind == "DELETED":
            name = body["metadata"]["name"]
            self._outlooks.pop(name, None)
            self._bytes -= self._sizes.pop(name, 0)
            if self._pods.pop(name, None) is not None:
                yield _change(body, gone=True)
        elif kind in ("ADDED", "MODIFIED") and (change := self._put(body, self._outlooks)):
            yield change

    def _refusal(self, status: Mapping[str, Any]) -> Transient:
        error = Transient(f"The watch of {self._region} has ended: {cleaned(str(status.get('message', '')))}")
        error.provider_code = "Expired" if status.get("code") == 410 else ""
        return error

    def _put(self, body: Body, known: Mapping[str, object]) -> MachineChange | None:
        """Remember a pod. Returns a change if it would be described in another way than before."""
        metadata = body["metadata"]
        name, now = metadata["name"], (metadata["uid"], outlook(body))
        before = known.get(name)
        if len(self._pods) >= MOST_PODS and name not in self._pods:
            raise _too_much(f"{self._region} has more than {MOST_PODS} pods of dstack.")
        kept = _kept(body)
        size = len(orjson.dumps(kept))
        total = self._bytes + size - self._sizes.get(name, 0)
        if total > self._most_bytes:
            raise _too_much(f"The pods of dstack in {self._region} have more than {self._most_bytes} bytes.")
        self._bytes = total
        self._pods[name], self._outlooks[name], self._sizes[name] = kept, now, size
        is_new = before is None and now[1] == Machine("pending")
        return None if is_new or before == now else _change(body)

    def _report(self, changes: Sequence[MachineChange]) -> None:
        if changes:
            self._changed(changes)


def _too_much(message: str) -> Transient:
    """What is remembered stays as it was before, so the watch mustn't go on from there."""
    error = Transient(message)
    error.provider_code = TOO_MUCH
    return error


def _kept(body: Body) -> Body:
    """What descriptions read of it: a tenth of what it is."""
    claims = [each for each in body["spec"].get("volumes", ()) if "persistentVolumeClaim" in each]
    spec = {name: body["spec"][name] for name in ("nodeName", "schedulingGates") if name in body["spec"]}
    metadata = {name: each for name, each in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata, "spec": {**spec, "volumes": claims}}


def _change(body: Mapping[str, Any], *, gone: bool = False) -> MachineChange:
    return MachineChange(str(body["metadata"].get("labels", {}).get(INSTANCE, "")), gone)
