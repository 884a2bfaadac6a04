"""Pods that start together: all or none, each under a name, with what a fast network needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chalicelib.backends.kubernetes import kubeconfig
from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.pods import GANG_GATE, GATE, service_name
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import Gone, InsufficientCapacity, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import INSTALL, member_for
from tests.backends.fakes.script import Cut, Fault
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.provider import NAMESPACE, T4, config_of
from tests.harness.server import until

NO_CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]}
OTHER_SCHEDULER = {"schedulerName": "volcano"}
RDMA = {"gpu_resources": {"rdma/ib": 1}, "networks": ["fast", "infra/faster"]}


@pytest.fixture
def home(clock: Clock) -> Iterator[Cluster]:
    """Two nodes with four GPUs each, and one with none."""
    found = Cluster(clock.now, "home")
    found.add_namespace(NAMESPACE)
    for name in ("gpu-1", "gpu-2"):
        devices = {"nvidia.com/gpu": "4", "rdma/ib": "4"}
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        found.add_node(name, labels=T4, taints=[taint], cpu="64", memory="512Gi", ephemeral_storage="4000Gi", **devices)
    found.add_node("cpu", cpu="64", memory="512Gi", ephemeral_storage="4000Gi")
    with found.serving():
        yield found


@pytest.fixture
def backend(home: Cluster, clock: Clock) -> Iterator[KubernetesBackend]:
    found = KubernetesBackend(config_of([home], **RDMA), now=clock.now)
    yield found
    found.close()


def wanted(nodes: int, gpus: int = 2) -> OfferRequest:
    return OfferRequest(resources=ResourcesSpec.model_validate({"gpu": f"T4:{gpus}", "cpu": "4"}), nodes=nodes)


def gang(backend: KubernetesBackend, nodes: int = 4) -> list[CreateRequest]:
    (offer,) = backend.offers_for(wanted(1))
    return [member_for(offer, "train", rank, nodes) for rank in range(nodes)]


def created(backend: KubernetesBackend, requests: Sequence[CreateRequest]) -> list[list[Handle]]:
    return [list(backend.create(each)) for each in requests]


def pods(home: Cluster) -> list[dict[str, Any]]:
    home.settle()
    return home.store.in_order("pods")


def placed(home: Cluster) -> list[bool]:
    return ["nodeName" in pod["spec"] for pod in pods(home)]


def gates(home: Cluster) -> list[list[str]]:
    return [[gate["name"] for gate in pod["spec"].get("schedulingGates", ())] for pod in pods(home)]


def ended(backend: KubernetesBackend, made: Sequence[Sequence[Handle]], clock: Clock) -> bool:
    gone = 0
    for handles in made:
        try:
            backend.terminate(handles[0])
        except Gone:
            gone += 1
    clock.passes(10.0)
    return gone == len(made)


def test_each_has_its_place_in_the_gang_and_the_network_that_the_context_names(
    home: Cluster, backend: KubernetesBackend
) -> None:
    created(backend, gang(backend))
    (service,) = home.store.all("services", NAMESPACE)
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    for rank, pod in enumerate(pods(home)):
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"node-{rank}", service["metadata"]["name"])
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert (limits["nvidia.com/gpu"], limits["rdma/ib"]) == ("2", "1")
        assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "fast, infra/faster"
    assert {pod["spec"]["nodeName"] for pod in pods(home)} == {"gpu-1", "gpu-2"}


def test_the_service_goes_with_the_first_pod_and_is_labelled_as_that_is(
    home: Cluster, backend: KubernetesBackend, clock: Clock
) -> None:
    made = created(backend, gang(backend, 2))
    (service,) = home.store.all("services", NAMESPACE)
    first = pods(home)[0]["metadata"]
    assert service["metadata"]["ownerReferences"][0]["uid"] == first["uid"] == made[0][0].data["uid"]
    assert service["metadata"]["labels"]["dstack-instance"] == first["labels"]["dstack-instance"]
    while not ended(backend, made, clock):
        pass
    assert [home.store.all(each, NAMESPACE) for each in ("pods", "secrets", "services")] == [[], [], []]


def test_without_room_for_all_none_is_placed_and_the_reason_names_the_nodes(
    home: Cluster, backend: KubernetesBackend, clock: Clock
) -> None:
    *others, last = gang(backend, 5)
    made = created(backend, others)
    clock.passes(60.0)
    assert placed(home) == [False] * 4 and gates(home) == [[GANG_GATE]] * 4
    making = backend.create(last)
    with pytest.raises(InsufficientCapacity) as refused:
        made += [[handle] for handle in making]
    assert str(refused.value) == (
        "There is no room for 5 pods at once in home: 4 fit, and for the next "
        "cpu (not of the offer's kind); gpu-1, gpu-2 (0 of 4 nvidia.com/gpu free)."
    )
    assert placed(home) == [False] * 5 and gates(home) == [[GANG_GATE]] * 5
    made = [[each.handle] for each in backend.list_owned()]
    while not ended(backend, made, clock):
        pass
    assert [home.store.all(each, NAMESPACE) for each in ("pods", "secrets", "services")] == [[], [], []]


def test_what_another_call_has_just_opened_of_the_same_gang_isnt_held_against_it(
    home: Cluster, backend: KubernetesBackend, clock: Clock
) -> None:
    *others, last = gang(backend)
    created(backend, others)
    config = config_of([home], **RDMA)

    class Meanwhile(Clusters):
        """Another call creates the last and opens the gates, before this one asks what the nodes have free."""

        done = False

        def listed(self, region: str, path: Sequence[str], **query: str) -> Iterator[Any]:
            if tuple(path)[-1] == "nodes" and not self.done:
                self.done = True
                list(backend.create(last))
                home.settle()
            return super().listed(region, path, **query)

    second = KubernetesBackend(config, now=clock.now, clusters=Meanwhile(kubeconfig.clusters(config), clock.now))
    list(second.create(last))
    assert placed(home) == [True] * 4
    second.close()


def test_one_that_finds_no_place_all_the_same_is_given_up_in_time_and_says_what_each_node_lacks(
    home: Cluster, backend: KubernetesBackend, clock: Clock
) -> None:
    """Its time begins when its gates open: to a scheduler it has been waiting since it was created."""
    requests = gang(backend, 4)
    made = created(backend, requests[:3])
    clock.passes(120.0)
    home.scheduler.paused = True
    made += created(backend, requests[3:])
    with home.store.changed:
        (node,) = [each for each in home.store.all("nodes") if each["metadata"]["name"] == "gpu-2"]
        home.store.change(node, spec={"unschedulable": True})
    home.scheduler.paused = False
    assert sorted(placed(home)) == [False, False, True, True]
    left = next(handles for handles, there in zip(made, placed(home), strict=True) if not there)
    assert backend.describe(left).state == "pending"
    clock.passes(31.0)
    with pytest.raises(Gone) as gone:
        backend.describe(left)
    assert gone.value.refused is InsufficientCapacity
    assert str(gone.value).endswith(
        "cpu (not of the offer's kind); gpu-1 (0 of 4 nvidia.com/gpu free); gpu-2 (cordoned)."
    )
    backend.watch(lambda changes: None, INSTALL)
    with pytest.raises(Gone):
        backend.describe(left)  # begins it
    until("the watch to know its pods", lambda: backend._watches.pods(home.name) is not None)
    before = len(home.calls)
    found = backend.describe_several(made)
    assert sum(isinstance(each, Gone) and str(each).endswith("gpu-2 (cordoned).") for each in found) == 2
    lists = [call.operation.name for call in home.calls[before:]]
    assert lists.count("list nodes") == 1, "two need it, and a watch has both"


@pytest.mark.parametrize("operation", ["create services", "patch pods", "list pods", "list nodes"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_answer_is_lost_the_next_call_goes_on(
    home: Cluster, backend: KubernetesBackend, operation: str, when: Any
) -> None:
    first, *others, last = gang(backend)
    rest = [first, *others] if operation != "create services" else others
    created(backend, rest)
    final = last if operation != "create services" else first
    if operation == "create services":
        created(backend, [last])
    home.faults.script.faults.append(Fault(operation, Cut, when=when))
    with pytest.raises(Transient):
        list(backend.create(final))
    list(backend.create(final))
    assert placed(home) == [True] * 4 and gates(home) == [[]] * 4
    assert len(home.store.all("services", NAMESPACE)) == 1


def test_one_whose_secret_isnt_there_yet_keeps_all_waiting(home: Cluster, backend: KubernetesBackend) -> None:
    *others, last = gang(backend)
    made = created(backend, others)
    making = backend.create(last)
    made.append([next(making)])
    list(backend.create(others[1]))
    assert gates(home) == [[GANG_GATE]] * 3 + [[GATE, GANG_GATE]] and not any(placed(home))
    list(making)
    assert placed(home) == [True] * 4


def test_offers_for_several_pods_are_of_nodes_with_room_for_all_of_them(backend: KubernetesBackend) -> None:
    (offer,) = backend.offers_for(wanted(4))
    assert offer.most_nodes == 4
    with pytest.raises(InsufficientCapacity, match=r"gpu-1, gpu-2 \(together room for 4 of the 5 pods\)"):
        backend.offers_for(wanted(5))
    alone: list[Offer] = list(backend.offers_for(wanted(1)))
    assert [each.key for each in alone] == [offer.key], "one offer, whoever asks"


def test_what_another_gang_is_about_to_take_is_no_room(home: Cluster, backend: KubernetesBackend, clock: Clock) -> None:
    home.scheduler.paused = True
    (offer,) = backend.offers_for(wanted(1))
    created(backend, [member_for(offer, "first", rank, 2) for rank in range(2)])
    *others, last = gang(backend, 3)
    created(backend, others)
    with pytest.raises(
        InsufficientCapacity, match=r"2 fit, and for the next .*; 2 pods that wait for a node come first"
    ):
        list(backend.create(last))
    home.scheduler.paused = False
    home.add_node("small", cpu="1", memory="1Gi", ephemeral_storage="1Gi")  # any change makes it look
    assert placed(home) == [True] * 2 + [False] * 3


@pytest.mark.parametrize("own", [NO_CLAIM, OTHER_SCHEDULER])
def test_what_finds_no_node_of_its_own_keeps_no_room(
    home: Cluster, backend: KubernetesBackend, clock: Clock, own: dict[str, Any]
) -> None:
    """Nor does what another scheduler places, whenever that will be."""
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    home.add("Pod", "stuck", "default", spec={"containers": [container], "tolerations": tolerations, **own})
    home.settle()
    clock.passes(20.0)
    created(backend, gang(backend))
    assert placed(home) == [False] + [True] * 4


def test_the_service_that_a_lost_answer_made_stays(home: Cluster, backend: KubernetesBackend) -> None:
    """Its pods may run, and reach each other by it."""
    first, *others = gang(backend)
    created(backend, others)
    home.faults.script.faults.append(Fault("create services", Cut, when="after"))
    with pytest.raises(Transient):
        list(backend.create(first))
    (made,) = home.store.all("services", NAMESPACE)
    list(backend.create(first))
    (found,) = home.store.all("services", NAMESPACE)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]


def test_the_service_of_an_earlier_pod_is_replaced(home: Cluster, backend: KubernetesBackend) -> None:
    first, *others = gang(backend)
    assert first.container is not None and first.container.gang is not None
    name = service_name(first.container.gang)
    home.add("Service", name, NAMESPACE, spec={"clusterIP": "None", "ports": [{"port": 80}]})
    created(backend, [first, *others])
    (found,) = home.store.all("services", NAMESPACE)
    assert found["metadata"]["ownerReferences"][0]["uid"] == pods(home)[0]["metadata"]["uid"]
