"""Where pods go beside each other: the nodes of a task close together, replicas apart, and what a context wishes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.config import ZONE, KubernetesContext
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import InsufficientCapacity, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import member_for, request_for
from tests.backends.fakes.script import Call, Cut, Fault
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.provider import NAMESPACE, T4, config_of

RACK = "example.com/rack"
HOST = "kubernetes.io/hostname"
NODES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b"}  # in racks


@pytest.fixture
def home(clock: Clock) -> Iterator[Cluster]:
    """Racks with eight and with twelve GPUs."""
    found = Cluster(clock.now, "home")
    found.add_namespace(NAMESPACE)
    for name, rack in NODES.items():
        add(found, name, {RACK: rack})
    with found.serving():
        yield found


def add(home: Cluster, name: str, labels: Mapping[str, str], gpus: int = 4, size: int = 1) -> None:
    devices = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    kind = T4 if gpus else {}
    home.add_node(
        name,
        labels={**kind, **labels},
        cpu=str(64 * size),
        memory=f"{512 * size}Gi",
        ephemeral_storage="4000Gi",
        **devices,
    )


def backend(home: Cluster, clock: Clock, **context: Any) -> KubernetesBackend:
    return KubernetesBackend(config_of([home], **context), now=clock.now)


def wanted(nodes: int = 1, **resources: Any) -> OfferRequest:
    spec = ResourcesSpec.model_validate({"cpu": "4", "gpu": "T4:2", **resources})
    return OfferRequest(resources=spec, nodes=nodes)


def gang(backend: KubernetesBackend, nodes: int) -> list[CreateRequest]:
    (offer,) = backend.offers_for(wanted())
    return [member_for(offer, "train", rank, nodes) for rank in range(nodes)]


def places(home: Cluster) -> list[str]:
    """The nodes of our pods, by rank or age."""
    home.settle()
    ours = [each for each in home.store.in_order("pods") if each["metadata"]["namespace"] == NAMESPACE]
    return [each["spec"].get("nodeName", "") for each in ours]


def racks(home: Cluster) -> str:
    return "".join(sorted({NODES.get(name, name[:1]) for name in places(home)}))


@pytest.mark.parametrize(("nodes", "where"), [(4, "a"), (5, "b"), (6, "b"), (7, "ab")])
def test_the_nodes_of_a_task_go_where_all_of_them_are_close_together_or_else_anywhere(
    home: Cluster, clock: Clock, nodes: int, where: str
) -> None:
    cluster = backend(home, clock, cluster_topology={"key": RACK})
    for each in gang(cluster, nodes):
        list(cluster.create(each))
    assert racks(home) == where


def test_unless_set_they_go_to_one_zone_if_it_has_room(home: Cluster, clock: Clock) -> None:
    for name in ("z1", "z2"):
        add(home, name, {ZONE: "zone"})
    cluster = backend(home, clock)
    for each in gang(cluster, 4):
        list(cluster.create(each))
    assert racks(home) == "z"


def test_where_that_is_required_a_task_that_fits_nowhere_isnt_started(home: Cluster, clock: Clock) -> None:
    cluster = backend(home, clock, cluster_topology={"key": RACK, "required": True})
    (offer,) = cluster.offers_for(wanted(6))
    assert offer.most_nodes == 6
    with pytest.raises(InsufficientCapacity, match=rf"together room for 6 of the 7 pods with one {RACK}"):
        cluster.offers_for(wanted(7))
    *others, last = gang(cluster, 7)
    for each in others:
        list(cluster.create(each))
    with pytest.raises(InsufficientCapacity) as refused:
        list(cluster.create(last))
    lacks = "(0 of 4 nvidia.com/gpu free)"
    assert str(refused.value) == (
        f"There is no room for 7 pods at once in home: nowhere with one {RACK}. "
        f"a: 4 fit, and for the next a1, a2 {lacks}. b: 6 fit, and for the next b1, b2, b3 {lacks}."
    )
    assert places(home) == [""] * 7
    lone = backend(home, clock, cluster_topology={"key": "example.com/none", "required": True})
    assert lone.offers_for(wanted()), "one alone needs nobody near"
    with pytest.raises(InsufficientCapacity, match="together room for 0 of the 2 pods"):
        lone.offers_for(wanted(2))


def test_a_call_that_was_cut_off_goes_on_where_it_began(home: Cluster, clock: Clock) -> None:
    cluster = backend(home, clock, cluster_topology={"key": RACK})
    *others, last = gang(cluster, 4)
    for each in others:
        list(cluster.create(each))
    home.faults.script.faults.append(Fault("patch pods", Cut, when="after", passing=1))  # the first opens its own gate
    with pytest.raises(Transient):
        list(cluster.create(last))
    add(home, "c1", {RACK: "c"}, gpus=16)  # it would be chosen now
    list(cluster.create(last))
    assert racks(home) == "a"


def test_of_two_calls_at_once_one_decides(home: Cluster, clock: Clock) -> None:
    cluster = backend(home, clock, cluster_topology={"key": RACK})
    *others, last = gang(cluster, 4)
    for each in others:
        list(cluster.create(each))
    seen: list[str] = []

    def meanwhile(call: Call) -> bool:
        """The other one opens the gate of the first pod, before our change of it arrives."""
        if b"nodeSelector" in call.body and not seen:
            seen.append(call.path["name"])
            (pod,) = [each for each in home.store.all("pods", NAMESPACE) if each["metadata"]["name"] == seen[0]]
            with home.store.changed:
                home.store.change(pod, spec={"schedulingGates": [], "nodeSelector": {RACK: "b"}})
        return False

    home.faults.script.faults.append(Fault("patch pods", Cut, fits=meanwhile))
    list(cluster.create(last))
    assert seen and racks(home) == "b"


def runs(cluster: KubernetesBackend, run: str, *names: str) -> None:
    (offer,) = [each for each in cluster.offers_for(wanted(gpu="0")) if "big" in each.instance.name]
    for name in names:
        request = request_for(offer, name)
        assert request.container is not None
        list(cluster.create(replace(request, container=replace(request.container, run=run))))


@pytest.fixture
def sizes(home: Cluster) -> None:
    """A node that a scheduler prefers, because it has more to spare, and one beside it that is half full."""
    for name, size in (("large", 10), ("small", 1)):
        add(home, name, {"node.kubernetes.io/instance-type": "big", HOST: name}, gpus=0, size=size)
    container = {"name": "c", "image": "redis", "resources": {"requests": {"cpu": "32"}}}
    home.add("Pod", "others", "default", spec={"containers": [container], "nodeSelector": {HOST: "small"}})
    home.settle()


@pytest.mark.parametrize(("spread", "where"), [([], ["large", "large"]), ([HOST], ["large", "small"])])
def test_replicas_are_spread_over_what_the_context_names(
    home: Cluster, clock: Clock, sizes: None, spread: list[str], where: list[str]
) -> None:
    runs(backend(home, clock, spread=spread), "one", "first", "second")
    assert sorted(places(home)) == where
    runs(backend(home, clock, spread=spread), "another", "third")
    assert sorted(places(home)) == sorted(["large", *where]), "those of other runs don't count"


@pytest.mark.parametrize("kind", ["", "pod_affinity", "pod_anti_affinity"])
def test_jobs_go_near_the_pods_or_away_from_them_that_the_context_names(
    home: Cluster, clock: Clock, sizes: None, kind: str
) -> None:
    others = "large" if kind == "pod_anti_affinity" else "small"
    spec = {"containers": [{"name": "c", "image": "redis"}], "nodeSelector": {HOST: others}}
    home.add("Pod", "cache", NAMESPACE, metadata={"labels": {"app": "cache"}}, spec=spec)
    home.settle()
    terms = {kind: [{"labels": {"app": "cache"}}]} if kind else {}
    runs(backend(home, clock, **terms), "one", "job")
    assert places(home) == [others, "large" if not kind else "small"]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"pod_affinity": [{"labels": {"app": "x"}, "required": True}]}, "required"),
        ({"pod_affinity": [{"labels": {}}]}, "labels"),
        ({"pod_anti_affinity": [{"labels": {"app": "x"}, "weight": 101}]}, "weight"),
        ({"spread": ["not a label"]}, "spread"),
        ({"cluster_topology": {"key": "not a label"}}, "key"),
    ],
)
def test_what_isnt_honoured_is_refused(written: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        KubernetesContext.model_validate({"name": "home", **written})
