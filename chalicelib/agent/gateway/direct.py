"""Direct routes to replicas on other hosts of the gateway's network.

The control plane names the address that such a replica should have, since the hosts of its fleet share a network. Only
a connection shows whether this machine can reach it: a firewall may be in between, or the replica may listen on
loopback only. So each address is tried before nginx gets it, and again from time to time. If it can't be reached, the
replica is reached over its agent's streams.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Callable, Collection, Dict, List, Mapping, NamedTuple, Set, Tuple, cast

if TYPE_CHECKING:
    from ...contract.agent_gateway import GatewayConfiguration, GatewayService, ServedReplica

PATIENCE = 1.0  # seconds for a connection, which takes a millisecond within a network
RECHECK_REACHABLE, RECHECK_UNREACHABLE = 10.0, 60.0  # seconds until the next attempt
Place = Tuple[str, int]  # an address and a port


class Attempt(NamedTuple):
    place: Place
    reachable: bool
    next_at: float


class DirectRoutes:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._attempts: Dict[str, Attempt] = {}  # by job: another job at the same place is tried again
        self._lock = threading.Lock()

    def refresh(self, configuration: GatewayConfiguration) -> bool:
        """Try the replicas that are due. Returns whether the route to one of them has changed."""
        with self._lock:
            places = _places(configuration)
            current = {job: last for job, last in self._attempts.items() if places.get(job) == last.place}
            now = self._clock()
            due = {job: place for job, place in places.items() if job not in current or current[job].next_at <= now}
            reachable = reachable_of(set(due.values())) if due else set()
            for job, place in due.items():
                next_at = self._clock() + (RECHECK_REACHABLE if place in reachable else RECHECK_UNREACHABLE)
                current[job] = Attempt(place, place in reachable, next_at)
            before, self._attempts = self._attempts, current
            return _reachable_places(before) != _reachable_places(current)

    def with_addresses(self, configuration: GatewayConfiguration) -> GatewayConfiguration:
        """The configuration with an address for each replica that is reached directly."""
        places = _reachable_places(self._attempts)

        def routed(replica: ServedReplica) -> ServedReplica:
            place = places.get(replica["job_id"])
            return {**replica, "address": place[0]} if place and place == _place(replica) else {**replica}

        services: List[GatewayService] = [
            {**service, "replicas": [routed(each) for each in service["replicas"]]}
            for service in configuration["services"]
        ]
        return {**configuration, "services": services}


def reachable_of(places: Collection[Place], patience: float = PATIENCE) -> Set[Place]:
    """The places that accept a connection within `patience`, in seconds. All are tried at once; nothing is sent."""
    found: Set[Place] = set()
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as sockets:
        for place in places:
            family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
            sock = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # not an address, or no route to it
                if sock.connect_ex(place) in (0, errno.EINPROGRESS):
                    selector.register(sock, selectors.EVENT_WRITE, place)
        until = time.monotonic() + patience
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                break
            for key, _ in ready:
                selector.unregister(key.fileobj)
                if cast(socket.socket, key.fileobj).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.add(key.data)
    return found


def _places(configuration: GatewayConfiguration) -> Dict[str, Place]:
    replicas = [each for service in configuration["services"] for each in service["replicas"]]
    return {each["job_id"]: _place(each) for each in replicas if _is_candidate(each)}


def _is_candidate(replica: ServedReplica) -> bool:
    usable = replica.get("ready") and not replica.get("draining")
    return bool(usable and replica.get("nearby") and not replica["address"])


def _place(replica: ServedReplica) -> Place:
    return replica.get("nearby") or "", replica["port"]


def _reachable_places(attempts: Mapping[str, Attempt]) -> Dict[str, Place]:
    return {job: each.place for job, each in attempts.items() if each.reachable}
