"""Gateways: pods that the world reaches, through a Service of the type LoadBalancer or at ports of their node.

The pod owns its Service, so that goes with it, whoever deletes the pod. The cluster may keep the Service until its
address is free again: it counts as gone when it can't be read any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.owners import REQUEST_TAG, all_tags
from chalicelib.backends.kubernetes import pods
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.config import KubernetesGateways
from chalicelib.backends.kubernetes.identities import Identities
from chalicelib.backends.kubernetes.kubeconfig import Cluster
from chalicelib.backends.kubernetes.labels import labels_of
from chalicelib.backends.kubernetes.objects import Objects
from chalicelib.backends.spi import CreateRequest, Machine
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, Micros, from_iso, spoken
from chalicelib.errors import AlreadyThere, Gone, Unfit

Body = dict[str, Any]
SERVICE = "service"  # the kind of its handle
LOAD_BALANCER = "LoadBalancer"
ADDRESS_WITHIN = 10 * MINUTE  # clouds take one to five
REFUSED_FOR = 2 * MINUTE  # failures that come again for so long won't pass by themselves


def gateways_of(cluster: Cluster, level: str) -> KubernetesGateways:
    """How gateways run there. Raises Unfit if they can't. `level`: what the namespace demands of pods."""
    found = cluster.context.gateways
    if found is None:
        raise Unfit(
            f"The context {cluster.region} has no `gateways`.",
            hint="Add `gateways: {}` to it, and the rules for services to its role: docs/guides/kubernetes.md.",
        )
    if level == "restricted":
        raise Unfit(
            f"The namespace {cluster.namespace} demands `restricted` pods, and a gateway installs nginx as root.",
            hint="Use a namespace that demands `baseline`, in a context of its own.",
        )
    return found


def has_services(cluster: Cluster) -> bool:
    """May there be Services of gateways?"""
    return cluster.context.gateways is not None and cluster.context.gateways.expose == LOAD_BALANCER


def service(request: CreateRequest, owner: Mapping[str, Any], gateways: KubernetesGateways) -> Body:
    name, tags = owner["metadata"]["name"], all_tags(request)
    labels, rest = labels_of(tags)
    spec: Body = {
        "type": LOAD_BALANCER,
        "externalTrafficPolicy": gateways.external_traffic_policy,
        "selector": {REQUEST_TAG: tags[REQUEST_TAG]},
        "ports": [{"name": f"port-{port}", "port": port, "targetPort": port} for port in request.open_ports],
    }
    if gateways.load_balancer_class is not None:
        spec["loadBalancerClass"] = gateways.load_balancer_class
    if gateways.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = list(gateways.load_balancer_source_ranges)
    belongs = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": owner["metadata"]["uid"]}
    annotations = {**gateways.annotations, **rest}
    metadata = {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": [belongs]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


class Services(Objects):
    def __init__(self, clusters: Clusters, now: Now, identities: Identities) -> None:
        super().__init__(clusters)
        self._now, self._identities = now, identities

    def create(self, request: CreateRequest, owner: Body) -> Handle:
        """The Service of the pod `owner`; if there is one, that."""
        region, name = request.offer.region, str(owner["metadata"]["name"])
        gateways = self._clusters.cluster(region).context.gateways
        assert gateways is not None
        try:
            found = self._call(region, "POST", "services", body=service(request, owner, gateways))
        except AlreadyThere:
            found = self._call(region, "GET", "services", name)
            owners = [each["uid"] for each in found["metadata"].get("ownerReferences", ())]
            if not pods.is_of(found, request) or owner["metadata"]["uid"] not in owners:
                text = f"The name {name} is taken in {region} by a service that isn't this gateway's."
                raise AlreadyThere(text) from None
        return self._identities.handle(found, region, SERVICE)

    def with_public_address(self, region: str, pod: Body, handles: Sequence[Handle], machine: Machine) -> Machine:
        """The pod as the world reaches it, if it is a gateway's. Raises Gone if it never will be, or no longer is."""
        how = pod["metadata"].get("annotations", {}).get(pods.EXPOSED)
        if how is None:
            return machine
        if how == LOAD_BALANCER:
            found = [self._address(region, each) for each in handles if each.kind == SERVICE]
            address = found[0] if found else ""
        else:
            address = self._of_node(region, pod)
        return replace(machine, state=machine.state if address else "pending", hostname=address)

    def _address(self, region: str, handle: Handle) -> str:
        """Empty: not yet."""
        with self._identities.checked(region, handle):
            body = self._call(region, "GET", "services", handle.id, namespace=handle.data.get("namespace"))
        if body["metadata"]["uid"] != handle.data.get("uid"):
            raise Gone(f"There is no service {handle.id} in {region} any more: somebody has replaced it.")
        given = body.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
        address = str(given[0].get("hostname") or given[0].get("ip") or "")
        if not address:
            self._check_wait(region, body)
        return address

    def _check_wait(self, region: str, body: Body) -> None:
        """Raises Gone if no address will come."""
        waits = self._since(body["metadata"]["creationTimestamp"])
        failures = [each for each in self._events(region, body) if each.get("type") == "Warning"]
        if waits < ADDRESS_WITHIN and _lasting(failures) < REFUSED_FOR:
            return
        name = f"The service {body['metadata']['name']} in {region}"
        if failures:
            why = f"{failures[-1].get('reason', '')}: {cleaned(str(failures[-1].get('message', '')))}"
            raise Gone(f"{name} gets no address: {why}", refused=Unfit)
        raise Gone(
            f"{name} was created over {spoken(ADDRESS_WITHIN)} ago and has no address, and no event says why. Does "
            "anything in the cluster make load balancers? Without that, write `expose: HostPort` below the context's "
            "`gateways`.",
            refused=Unfit,
        )

    def _since(self, at: str) -> Micros:
        return max(0, self._now() - from_iso(at))

    def _of_node(self, region: str, pod: Body) -> str:
        """The node's public address, or else its internal one; empty before the pod has a node."""
        name, inside = pod["spec"].get("nodeName"), str(pod.get("status", {}).get("hostIP", ""))
        if not name or not inside:
            return ""
        nodes = self._clusters.listed(region, ("api", "v1", "nodes"), fieldSelector=f"metadata.name={name}")
        addresses = [each for node in nodes for each in node.get("status", {}).get("addresses", ())]
        found = {str(each["type"]): str(each["address"]) for each in reversed(addresses)}
        return found.get("ExternalIP") or found.get("ExternalDNS") or inside


def _lasting(failures: Sequence[Mapping[str, Any]]) -> Micros:
    """How long after the first of them the last one was. Each may have a text of its own."""
    first = [from_iso(at) for each in failures if (at := each.get("firstTimestamp") or each.get("eventTime"))]
    last = [from_iso(at) for each in failures if (at := each.get("lastTimestamp") or _observed(each))]
    return max(last) - min(first) if first and last else 0


def _observed(event: Mapping[str, Any]) -> str | None:
    """The last time in the newer form of events."""
    return (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
