"""Where the fake's pods go, and what it says of those that go nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.clock import Clock
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.objects import claim, pod

HERE = "default"
GPU = "nvidia.com/gpu"


def place(core: Any, name: str) -> str | None:
    found: str | None = core.read_namespaced_pod(name, HERE).spec.node_name
    return found


def why(core: Any, name: str) -> str:
    """The message of a pod that isn't scheduled, which its one event has too."""
    found = core.read_namespaced_pod(name, HERE)
    (condition,) = found.status.conditions
    assert (found.status.phase, condition.type, condition.status) == ("Pending", "PodScheduled", "False")
    assert condition.reason == "Unschedulable"
    selector = f"involvedObject.uid={found.metadata.uid},reason=FailedScheduling"
    events = core.list_namespaced_event(HERE, field_selector=selector).items
    assert events[-1].message == condition.message
    message: str = condition.message
    return message


def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": [each]} for each in expressions]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_gpus_are_booked_until_their_pod_is_gone(core: Any, cluster: Cluster, clock: Clock) -> None:
    from tests.backends.kubernetes.fake.scripted import Life

    cluster.scripted.life = lambda given, container: Life(stops=None)
    cluster.add_node("gpu", **{GPU: "8"})
    for name, count in (("a", "6"), ("b", "4")):
        core.create_namespaced_pod(HERE, pod(name, limits={GPU: count}))
    assert place(core, "a") == "gpu"
    assert why(core, "b") == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    core.delete_namespaced_pod("a", HERE)
    assert place(core, "b") is None  # one that is being ended holds what it has
    clock.passes(30)
    assert place(core, "b") == "gpu"


def test_what_fits_nowhere_waits_for_ever_for_a_node(core: Any, cluster: Cluster, clock: Clock) -> None:
    core.create_namespaced_pod(HERE, pod("a", limits={GPU: "1"}))
    clock.passes(7 * 86_400)
    assert "1 Insufficient nvidia.com/gpu" in why(core, "a")
    cluster.add_node("new", **{GPU: "1"})
    assert place(core, "a") == "new"


def test_what_has_ended_holds_nothing(core: Any, cluster: Cluster) -> None:
    from tests.backends.kubernetes.fake.scripted import Life

    cluster.scripted.life = lambda given, container: Life(runs=0)
    for name in "ab":
        core.create_namespaced_pod(HERE, pod(name, requests={"cpu": "8"}))
        assert place(core, name) == "one"


def test_init_containers_sidecars_and_overhead_count(core: Any, cluster: Cluster) -> None:
    big = {"name": "big", "image": "x:1", "resources": {"requests": {"cpu": "7"}}}
    side = {"name": "side", "image": "x:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}
    core.create_namespaced_pod(HERE, pod("a", requests={"cpu": "1"}, initContainers=[side, big]))
    core.create_namespaced_pod(HERE, pod("b", requests={"cpu": "600m"}))
    assert (place(core, "a"), place(core, "b")) == ("one", None)
    assert "Insufficient cpu" in why(core, "b")
    cluster.add("RuntimeClass", "kata", handler="kata", overhead={"podFixed": {"cpu": "400m"}})
    core.create_namespaced_pod(HERE, pod("c", requests={"cpu": "200m"}, runtimeClassName="kata"))
    core.create_namespaced_pod(HERE, pod("d", requests={"cpu": "100m"}, runtimeClassName="kata"))
    assert (place(core, "c"), place(core, "d")) == (None, "one")


def test_only_so_many_pods(core: Any, cluster: Cluster) -> None:
    cluster.add_node("small", pods="1", labels={"size": "small"})
    for name in "ab":
        core.create_namespaced_pod(HERE, pod(name, nodeSelector={"size": "small"}))
    assert place(core, "a") == "small"
    assert "1 Too many pods, 1 node(s) didn't match Pod's node affinity/selector" in why(core, "b")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_taints_hold_by_their_effect(core: Any, cluster: Cluster, effect: str) -> None:
    cluster.add_node("gpu", taints=[{"key": GPU, "value": "present", "effect": effect}], labels={"x": "1"})
    core.create_namespaced_pod(HERE, pod("plain", nodeSelector={"x": "1"}))
    core.create_namespaced_pod(HERE, pod("free"))
    tolerations = [{"key": GPU, "operator": "Exists"}]
    core.create_namespaced_pod(HERE, pod("tolerant", nodeSelector={"x": "1"}, tolerations=tolerations))
    assert (place(core, "free"), place(core, "tolerant")) == ("one", "gpu")
    if effect == "PreferNoSchedule":
        assert place(core, "plain") == "gpu"
    else:
        assert "1 node(s) had untolerated taint {nvidia.com/gpu: present}" in why(core, "plain")


def test_nodes_are_chosen_by_labels_and_affinity(core: Any, cluster: Cluster) -> None:
    cluster.add_node("a", labels={"model": "A100", "count": "8"})
    cluster.add_node("b", labels={"model": "H100", "count": "4"})
    wanted = {
        "in": affinity({"key": "model", "operator": "In", "values": ["H100", "H200"]}),
        "more": affinity({"key": "count", "operator": "Gt", "values": ["4"]}),
        "either": affinity(
            {"key": "model", "operator": "In", "values": ["none"]}, {"key": "count", "operator": "In", "values": ["4"]}
        ),
        "without": affinity({"key": "model", "operator": "DoesNotExist"}),
        "nothing": affinity({"key": "model", "operator": "In", "values": ["none"]}),
    }
    for name, each in wanted.items():
        core.create_namespaced_pod(HERE, pod(name, affinity=each))
    assert [place(core, name) for name in wanted] == ["b", "a", "b", "one", None]


def test_one_pod_a_node(core: Any, cluster: Cluster) -> None:
    cluster.add_node("two")
    term = {"labelSelector": {"matchLabels": {"group": "g"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for name in "abc":
        core.create_namespaced_pod(HERE, pod(name, labels={"group": "g"}, affinity=apart))
    assert {place(core, "a"), place(core, "b")} == {"one", "two"}
    assert "2 node(s) didn't match pod anti-affinity rules" in why(core, "c")


def test_a_cordoned_node_takes_nothing_new(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("before"))
    core.patch_node("one", {"spec": {"unschedulable": True}})
    core.create_namespaced_pod(HERE, pod("after"))
    assert place(core, "before") == "one"
    assert "1 node(s) were unschedulable" in why(core, "after")
    assert [each.key for each in core.read_node("one").spec.taints] == ["node.kubernetes.io/unschedulable"]
    core.patch_node("one", {"spec": {"unschedulable": None}})
    assert place(core, "after") == "one"


def test_pods_with_gates_wait(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("a", schedulingGates=[{"name": "x/hold"}]))
    (condition,) = core.read_namespaced_pod("a", HERE).status.conditions
    assert (condition.status, condition.reason) == ("False", "SchedulingGated")


def test_higher_priorities_take_room_back_from_the_lowest(core: Any, cluster: Cluster) -> None:
    for name, value in (("low", 1), ("middle", 50), ("high", 100)):
        cluster.add("PriorityClass", name, value=value)
    core.create_namespaced_pod(HERE, pod("big", requests={"cpu": "6"}, priorityClassName="low"))
    core.create_namespaced_pod(HERE, pod("small", requests={"cpu": "2"}, priorityClassName="middle"))
    core.create_namespaced_pod(HERE, pod("urgent", requests={"cpu": "4"}, priorityClassName="high"))
    assert [each.metadata.name for each in core.list_namespaced_pod(HERE).items] == ["small", "urgent"]
    assert place(core, "urgent") == "one"
    polite = pod("polite", requests={"cpu": "8"}, priorityClassName="high", preemptionPolicy="Never")
    core.create_namespaced_pod(HERE, polite)
    assert "Preemption is not helpful" in why(core, "polite")


def test_claims_that_wait_for_their_first_pod(core: Any, cluster: Cluster) -> None:
    cluster.add("StorageClass", "late", provisioner="x/y", volumeBindingMode="WaitForFirstConsumer")
    cluster.add("StorageClass", "now", provisioner="x/y")
    cluster.binder.fails["now"] = "the provisioner has no node to run on"
    for name in ("late", "now"):
        core.create_namespaced_persistent_volume_claim(HERE, claim(name, storageClassName=name))
        assert core.read_namespaced_persistent_volume_claim(name, HERE).status.phase == "Pending"
        core.create_namespaced_pod(HERE, pod(name, volumes=[volume(name)]))
    assert place(core, "late") == "one"
    assert core.read_namespaced_pod("late", HERE).status.phase == "Running"
    bound = core.read_namespaced_persistent_volume_claim("late", HERE)
    assert (bound.status.phase, bound.status.capacity) == ("Bound", {"storage": "1Gi"})
    assert "pod has unbound immediate PersistentVolumeClaims" in why(core, "now")
    (event,) = core.list_namespaced_event(HERE, field_selector="reason=ProvisioningFailed").items
    assert event.involved_object.name == "now" and "no node to run on" in event.message
    core.create_namespaced_pod(HERE, pod("none", volumes=[volume("none")]))
    assert 'persistentvolumeclaim "none" not found' in why(core, "none")


def volume(name: str) -> dict[str, Any]:
    return {"name": "v", "persistentVolumeClaim": {"claimName": name}}


def test_a_disk_of_one_node_hangs_on_another(core: Any, cluster: Cluster) -> None:
    cluster.add_node("two")
    cluster.add("StorageClass", "now", provisioner="x/y")
    core.create_namespaced_persistent_volume_claim(HERE, claim("data", storageClassName="now"))
    for name in ("one", "two"):
        selector = {"kubernetes.io/hostname": name}
        core.create_namespaced_pod(HERE, pod(name, volumes=[volume("data")], nodeSelector=selector))
    hanging = core.read_namespaced_pod("two", HERE)
    (status,) = hanging.status.container_statuses
    assert (hanging.status.phase, status.state.waiting.reason) == ("Pending", "ContainerCreating")
    (event,) = core.list_namespaced_event(HERE, field_selector="reason=FailedAttachVolume").items
    assert "Multi-Attach error" in event.message
