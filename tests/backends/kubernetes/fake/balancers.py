"""What gives Services of the type LoadBalancer their addresses, and takes these back: a cloud's, or MetalLB.

A cluster may have none: such a Service then waits for ever, and nothing says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.instants import SECOND, Micros, from_iso
from tests.backends.kubernetes.fake.schema import Object, of_kind
from tests.backends.kubernetes.fake.store import copied

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

NEVER: Micros = 1 << 62
RETRIED = 10 * SECOND
CLEANUP = "service.kubernetes.io/load-balancer-cleanup"  # the finalizer that keeps a Service until its address is free


class LoadBalancers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.addresses: list[str] = []  # to give out, the last again and again; empty: there is no such controller
        self.takes, self.releases = 0 * SECOND, 0 * SECOND  # how long it takes to get one, and to take it back
        self.fails = ""  # why nobody gets an address
        self.fails_for = NEVER  # from when a Service is created
        self.taken: dict[str, str] = {}  # addresses that somebody pays for, by the uid of their Service

    def change(self, before: str, after: str) -> None:
        """A Service gets another address."""
        store = self._cluster.store
        (uid,) = [uid for uid, address in self.taken.items() if address == before]
        (service,) = [each for each in store.all("services") if each["metadata"]["uid"] == uid]
        self.taken[uid] = after
        with store.changed:
            store.change(service, status={"loadBalancer": {"ingress": [{"hostname": after}]}})

    def settle(self) -> Micros:
        if not self.addresses and not self.fails:
            return NEVER
        due = NEVER
        for service in self._cluster.store.in_order("services"):
            if service["spec"]["type"] != "LoadBalancer":
                continue
            due = min(due, self._end(service) if "deletionTimestamp" in service["metadata"] else self._give(service))
        return due

    def _give(self, service: Object) -> Micros:
        cluster, meta, now = self._cluster, service["metadata"], self._cluster.now()
        if CLEANUP not in meta.get("finalizers", ()):
            changed = copied(service)
            changed["metadata"].setdefault("finalizers", []).append(CLEANUP)
            service = cluster.store.replace(of_kind("Service"), service, changed)
            cluster.event(service, "EnsuringLoadBalancer", "Ensuring load balancer", source="service-controller")
        if service["status"]["loadBalancer"]:
            return NEVER
        until = from_iso(meta["creationTimestamp"]) + self.fails_for
        if self.fails and now < until:
            why = f"Error syncing load balancer: failed to ensure load balancer: {self.fails}"
            cluster.event(service, "SyncLoadBalancerFailed", why, "Warning", "service-controller")
            return min(now + RETRIED, until)
        at = from_iso(meta["creationTimestamp"]) + self.takes
        if now < at:
            return at
        free = [each for each in self.addresses if each not in self.taken.values()]
        address = self.taken[meta["uid"]] = (free or self.addresses[-1:])[0]
        kind = "ip" if address.replace(".", "").isdigit() else "hostname"
        cluster.store.change(service, status={"loadBalancer": {"ingress": [{kind: address}]}})
        cluster.event(service, "EnsuredLoadBalancer", "Ensured load balancer", source="service-controller")
        return NEVER

    def _end(self, service: Object) -> Micros:
        meta = service["metadata"]
        if CLEANUP not in meta.get("finalizers", ()):
            return NEVER
        at = from_iso(meta["deletionTimestamp"]) + self.releases
        if self._cluster.now() < at:
            return at
        self.taken.pop(meta["uid"], None)
        changed = copied(service)
        changed["metadata"]["finalizers"].remove(CLEANUP)
        self._cluster.store.replace(of_kind("Service"), service, changed)
        return NEVER
