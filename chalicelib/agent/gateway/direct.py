"""Replicas on other hosts of the gateway's network, which nginx reaches by itself wherever that works.

The control plane says where such a replica should be, since the hosts of its fleet share a network. Only a try shows
whether this machine can reach it there: a firewall may be in between, or the replica may listen on loopback only. So
each is tried before nginx learns of it, and again from time to time. Its streams stay available for when that fails.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Set, Tuple, cast

PATIENCE = 1.0  # seconds for a connection, which within a network takes a millisecond
WHILE_GOOD, WHILE_NOT = 10.0, 60.0  # seconds until the next try
Configuration = Mapping[str, Any]
Place = Tuple[str, int]  # an address and a port


class Tried(NamedTuple):
    place: Place
    good: bool
    again: float  # when


class Direct:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tried: Dict[str, Tried] = {}  # by job: another's at the same place is tried anew
        self._lock = threading.Lock()

    def look(self, configuration: Configuration) -> bool:
        """Try what is due. True if another way is taken to one of them from now on."""
        with self._lock:
            wanted = _places(configuration)
            known = {job: tried for job, tried in self._tried.items() if wanted.get(job) == tried.place}
            now = self._clock()
            due = {job: place for job, place in wanted.items() if job not in known or known[job].again <= now}
            good = reached(set(due.values())) if due else set()
            after = dict(known)
            for job, place in due.items():
                again = self._clock() + (WHILE_GOOD if place in good else WHILE_NOT)
                after[job] = Tried(place, place in good, again)
            self._tried, before = after, self._tried
            return _straight(before) != _straight(after)

    def applied(self, configuration: Configuration) -> Dict[str, Any]:
        """The configuration with an address for each replica that is reached by itself."""
        straight = _straight(self._tried)

        def found(replica: Mapping[str, Any]) -> Dict[str, Any]:
            place = straight.get(replica["job_id"])
            return {**replica, "address": place[0]} if place and place == _place(replica) else {**replica}

        services = [
            {**service, "replicas": [found(each) for each in service["replicas"]]}
            for service in configuration["services"]
        ]
        return {**configuration, "services": services}


def reached(places: Collection[Place]) -> Set[Place]:
    """Those at which something takes connections. All are tried at once; nothing is sent."""
    found: Set[Place] = set()
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as made:
        for place in places:
            family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
            sock = made.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # no address of this machine's kind: it isn't reached
                if sock.connect_ex(place) in (0, errno.EINPROGRESS):
                    selector.register(sock, selectors.EVENT_WRITE, place)
        until = time.monotonic() + PATIENCE
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                selector.unregister(key.fileobj)
                if cast(socket.socket, key.fileobj).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.add(key.data)
    return found


def _places(configuration: Configuration) -> Dict[str, Place]:
    replicas: List[Mapping[str, Any]] = [each for service in configuration["services"] for each in service["replicas"]]
    return {each["job_id"]: _place(each) for each in replicas if _is_candidate(each)}


def _is_candidate(replica: Mapping[str, Any]) -> bool:
    wanted = replica.get("ready") and not replica.get("draining")
    return bool(wanted and replica.get("nearby") and not replica["address"])


def _place(replica: Mapping[str, Any]) -> Place:
    return replica.get("nearby") or "", replica["port"]


def _straight(tried: Mapping[str, Tried]) -> Dict[str, Place]:
    return {job: each.place for job, each in tried.items() if each.good}
