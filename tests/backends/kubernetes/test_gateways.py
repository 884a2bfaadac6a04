"""Gateways in clusters: how the world reaches their pods, and where they can't be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.kit.owners import REQUEST_TAG
from chalicelib.backends.kubernetes import kubeconfig
from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.gateways import ADDRESS_WITHIN, REFUSED_FOR
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.errors import AlreadyThere, Gone, InsufficientCapacity, Unfit
from chalicelib.planning.gateways.gateway_machines import SMALL_CONTAINER
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import offers_of
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.schema import of_kind
from tests.backends.kubernetes.provider import NAMESPACE, config_of

Make = Callable[..., KubernetesBackend]


@pytest.fixture
def cluster(clock: Clock) -> Iterator[Cluster]:
    found = Cluster(clock.now, "here")
    found.add_namespace(NAMESPACE)
    found.add_node("one", labels={"edge": "yes"}, cpu="16", memory="64Gi", ephemeral_storage="1000Gi")
    found.balancers.addresses = ["lb-1.example.com"]
    with found.serving():
        yield found


@pytest.fixture
def make(cluster: Cluster, clock: Clock) -> Iterator[Make]:
    made: list[KubernetesBackend] = []

    def backend(**context: Any) -> KubernetesBackend:
        calls = Clusters(kubeconfig.clusters(config_of([cluster], **context)), clock.now)
        made.append(KubernetesBackend(config_of([cluster], **context), calls, clock.now))
        return made[-1]

    yield backend
    for each in made:
        each.close()


def door(backend: KubernetesBackend) -> CreateRequest:
    return replace(request_for(offers_of(backend)[0], "door"), open_ports=(80, 443))


def test_a_service_of_the_cluster_is_its_address(make: Make, cluster: Cluster, clock: Clock) -> None:
    own = {"annotations": {"example.com/internal": "true"}, "load_balancer_class": "example.com/fast"}
    own |= {"image": "mirror.lan/debian:12", "load_balancer_source_ranges": ["192.0.2.0/24"]}
    backend = make(gateways=own)
    handles = list(backend.create_gateway(door(backend)))
    assert [each.kind for each in handles] == ["vm", "service"]
    clock.passes(5)
    found = backend.describe(handles)
    assert (found.state, found.hostname) == ("running", "lb-1.example.com")
    pod = cluster.pod(handles[0].id, NAMESPACE)
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "mirror.lan/debian:12" and "hostPort" not in str(container["ports"])
    service = cluster.store.get(of_kind("Service"), NAMESPACE, handles[1].id)
    spec, metadata = service["spec"], service["metadata"]
    assert spec["selector"] == {REQUEST_TAG: pod["metadata"]["labels"][REQUEST_TAG]}
    assert (spec["externalTrafficPolicy"], spec["loadBalancerClass"]) == ("Local", "example.com/fast")
    assert spec["loadBalancerSourceRanges"] == ["192.0.2.0/24"]
    assert metadata["annotations"]["example.com/internal"] == "true"
    assert [each["uid"] for each in metadata["ownerReferences"]] == [pod["metadata"]["uid"]]


def test_a_service_goes_with_its_pod_whoever_deletes_that(make: Make, cluster: Cluster, clock: Clock) -> None:
    cluster.balancers.releases = 30 * SECOND
    backend = make(gateways={})
    handles = list(backend.create_gateway(door(backend)))
    clock.passes(5)
    assert backend.describe(handles).hostname and cluster.balancers.taken
    with cluster.store.changed:
        cluster.store.remove(of_kind("Pod"), cluster.pod(handles[0].id, NAMESPACE))
    with pytest.raises(Gone, match="There is no pod"):
        backend.describe(handles)
    clock.passes(10)
    backend.terminate(handles[1])  # not gone yet: its address isn't free
    clock.passes(60)
    with pytest.raises(Gone):
        backend.terminate(handles[1])
    assert not cluster.balancers.taken


def test_ports_of_its_node_in_place_of_a_service(make: Make, cluster: Cluster, clock: Clock) -> None:
    backend = make(gateways={"expose": "HostPort", "node_selector": {"edge": "yes"}})
    handles = list(backend.create_gateway(door(backend)))
    clock.passes(5)
    assert [each.kind for each in handles] == ["vm"] and cluster.store.all("services", NAMESPACE) == []
    assert backend.describe(handles).hostname == "10.0.0.1"
    pod = cluster.pod(handles[0].id, NAMESPACE)
    ports = pod["spec"]["containers"][0]["ports"]
    assert [(each["containerPort"], each["hostPort"]) for each in ports] == [(80, 80), (443, 443)]
    assert pod["spec"]["nodeSelector"] == {"edge": "yes"}
    (node,) = cluster.store.all("nodes")
    public = {"type": "ExternalIP", "address": "203.0.113.7"}
    with cluster.store.changed:
        cluster.store.change(node, status={"addresses": [*node["status"]["addresses"], public]})
    assert backend.describe(handles).hostname == "203.0.113.7"
    another = list(backend.create_gateway(replace(request_for(offers_of(backend)[0], "two"), open_ports=(80,))))
    clock.passes(40)
    with pytest.raises(Gone, match="free ports"):
        backend.describe(another)


def test_without_any_controller_it_says_what_to_do(make: Make, cluster: Cluster, clock: Clock) -> None:
    cluster.balancers.addresses = []
    backend = make(gateways={})
    handles = list(backend.create_gateway(door(backend)))
    clock.passes((ADDRESS_WITHIN - MINUTE) / SECOND)
    assert (backend.describe(handles).state, backend.describe(handles).hostname) == ("pending", "")
    clock.passes(60)
    with pytest.raises(Gone, match=r"no event says why.*`expose: HostPort`") as gone:
        backend.describe(handles)
    assert gone.value.refused is Unfit


def test_another_address_shows(make: Make, cluster: Cluster, clock: Clock) -> None:
    backend = make(gateways={})
    handles = list(backend.create_gateway(door(backend)))
    clock.passes(5)
    assert backend.describe(handles).hostname == "lb-1.example.com"
    cluster.balancers.change("lb-1.example.com", "lb-2.example.com")
    assert backend.describe(handles).hostname == "lb-2.example.com"


def test_a_failure_that_passes_ends_no_gateway(make: Make, cluster: Cluster, clock: Clock) -> None:
    one = cluster.balancers
    one.fails, one.fails_for, one.takes = "throttled", SECOND, 5 * MINUTE
    backend = make(gateways={})
    handles = list(backend.create_gateway(door(backend)))
    clock.passes(4 * MINUTE / SECOND)
    assert backend.describe(handles).state == "pending"
    clock.passes(MINUTE / SECOND)
    assert backend.describe(handles).hostname == "lb-1.example.com"


def test_failures_that_come_again_end_it_whatever_each_says(make: Make, cluster: Cluster, clock: Clock) -> None:
    cluster.balancers.fails = "request 1: no free address"
    backend = make(gateways={})
    handles = list(backend.create_gateway(door(backend)))
    clock.passes(REFUSED_FOR / SECOND - 10)
    assert backend.describe(handles).state == "pending"
    cluster.balancers.fails = "request 2: no free address"
    clock.passes(20)
    with pytest.raises(Gone, match="request 2: no free address") as gone:
        backend.describe(handles)
    assert gone.value.refused is Unfit


def test_how_it_is_reached_is_as_it_was_created(make: Make, cluster: Cluster, clock: Clock) -> None:
    """The context's `expose` may be another one when a call is repeated."""
    request = door(make(gateways={}))
    next(make(gateways={}).create_gateway(request))
    handles = list(make(gateways={"expose": "HostPort"}).create_gateway(request))
    clock.passes(5)
    assert make(gateways={}).describe(handles).hostname == "lb-1.example.com"


def test_a_region_that_doesnt_exist_is_answered_with_those_that_do(make: Make) -> None:
    with pytest.raises(InsufficientCapacity, match="is one of its contexts: here"):
        make().offers_for(OfferRequest(resources=SMALL_CONTAINER, regions=("hear",)))


def test_where_it_cant_run_nothing_is_created(make: Make, cluster: Cluster) -> None:
    backend = make()
    with pytest.raises(Unfit, match=r"The context here has no `gateways`\. Add `gateways: \{\}` to it"):
        list(backend.create_gateway(door(backend)))
    cluster.add_namespace("strict", **{"pod-security.kubernetes.io/enforce": "restricted"})
    strict = make(gateways={}, namespace="strict")
    with pytest.raises(Unfit, match="demands `restricted` pods, and a gateway installs nginx as root"):
        list(strict.create_gateway(door(strict)))
    cluster.add_namespace("base", **{"pod-security.kubernetes.io/enforce": "baseline"})
    base = make(gateways={"expose": "HostPort"}, namespace="base")
    with pytest.raises(Unfit, match="hostPort"):
        list(base.create_gateway(door(base)))
    assert not [each for name in (NAMESPACE, "strict", "base") for each in cluster.store.all("pods", name)]


def test_a_service_of_others_is_left_alone(make: Make, cluster: Cluster, clock: Clock) -> None:
    backend = make(gateways={})
    making = backend.create_gateway(door(backend))
    pod = next(making)
    cluster.add("Service", pod.id, NAMESPACE, spec={"ports": [{"port": 80}]})
    with pytest.raises(AlreadyThere, match="a service that isn't this gateway's"):
        next(making)
    with cluster.store.changed:
        cluster.store.remove(of_kind("Service"), cluster.store.get(of_kind("Service"), NAMESPACE, pod.id))
    handles = list(backend.create_gateway(door(backend)))
    service = cluster.store.get(of_kind("Service"), NAMESPACE, pod.id)
    with cluster.store.changed:
        cluster.store.remove(of_kind("Service"), service)
    cluster.add("Service", pod.id, NAMESPACE, spec={"ports": [{"port": 80}]})
    clock.passes(5)
    with pytest.raises(Gone, match="somebody has replaced it"):
        backend.describe(handles)
    with pytest.raises(Gone):
        backend.terminate(handles[1])
    assert cluster.store.find("services", NAMESPACE, pod.id) is not None


@pytest.mark.parametrize(
    ("written", "field", "what"),
    [
        ({"expose": "Ingress"}, "expose", "LoadBalancer"),
        ({"expose": "HostPort", "load_balancer_class": "x"}, "load_balancer_class", "there is no Service"),
        ({"load_balancer_source_ranges": ["all"]}, "load_balancer_source_ranges", "isn't a range of addresses"),
        ({"annotations": {"-": "x"}}, "annotations", "isn't the key of a label or an annotation"),
    ],
)
def test_what_is_written_wrong(cluster: Cluster, written: dict[str, Any], field: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as wrong:
        config_of([cluster], gateways=written)
    assert field in str(wrong.value)
