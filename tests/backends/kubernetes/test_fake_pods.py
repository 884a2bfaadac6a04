"""What becomes of the fake's pods: starts, ends, and all that can go wrong on the way, as a real cluster says it."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from chalicelib.domain.instants import SECOND
from tests.backends.clock import Clock
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.kubelet import Exit, Trouble
from tests.backends.kubernetes.fake.scripted import Life, no_image
from tests.backends.kubernetes.objects import pod, secret

HERE = "default"


def read(core: Any, name: str = "a") -> Any:
    return core.read_namespaced_pod(name, HERE)


def state(core: Any, name: str = "a") -> Any:
    return read(core, name).status.container_statuses[0].state


def reasons(core: Any, name: str = "a") -> set[str]:
    found = core.list_namespaced_event(HERE, field_selector=f"involvedObject.uid={read(core, name).metadata.uid}")
    return {each.reason for each in found.items}


def disruption(core: Any, name: str = "a") -> str:
    (found,) = [each for each in read(core, name).status.conditions if each.type == "DisruptionTarget"]
    assert found.status == "True"
    reason: str = found.reason
    return reason


def test_a_pod_is_pulled_and_runs(core: Any, cluster: Cluster, clock: Clock) -> None:
    cluster.scripted.life = lambda given, container: Life(pulling=5 * SECOND)
    core.create_namespaced_pod(HERE, pod("a"))
    found = read(core)
    assert (found.status.phase, state(core).waiting.reason) == ("Pending", "ContainerCreating")
    assert found.status.pod_ip.startswith("10.244.") and found.status.host_ip == "10.0.0.1"
    clock.passes(5)
    found = read(core)
    assert (found.status.phase, found.status.container_statuses[0].ready) == ("Running", True)
    assert {each.type: each.status for each in found.status.conditions} == dict.fromkeys(
        ("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True"
    )
    assert state(core).running.started_at == found.status.start_time + datetime.timedelta(seconds=5)
    assert {"Scheduled", "Pulled", "Started"} <= reasons(core)


@pytest.mark.parametrize(
    ("end", "phase", "reason"),
    [
        (Exit(0), "Succeeded", "Completed"),
        (Exit(3), "Failed", "Error"),
        (Exit(137, "OOMKilled"), "Failed", "OOMKilled"),
    ],
)
def test_a_pod_ends_as_its_container_does(
    core: Any, cluster: Cluster, clock: Clock, end: Exit, phase: str, reason: str
) -> None:
    cluster.scripted.life = lambda given, container: Life(runs=60 * SECOND, end=end)
    core.create_namespaced_pod(HERE, pod("a"))
    clock.passes(59)
    assert read(core).status.phase == "Running"
    clock.passes(1)
    assert read(core).status.phase == phase
    assert (state(core).terminated.exit_code, state(core).terminated.reason) == (end.code, reason)


def test_a_deleted_pod_may_show_how_its_container_ended_before_it_goes(
    core: Any, cluster: Cluster, clock: Clock
) -> None:
    cluster.kubelet.removes_after = 5 * SECOND
    cluster.scripted.life = lambda given, container: Life(stops=SECOND, end=Exit(143))
    core.create_namespaced_pod(HERE, pod("a"))
    core.delete_namespaced_pod("a", HERE)
    clock.passes(2)
    found = read(core)
    assert found.metadata.deletion_timestamp and found.status.phase == "Failed"
    assert state(core).terminated.exit_code == 143
    clock.passes(5)
    cluster.settle()
    assert cluster.store.find("pods", HERE, "a") is None


def test_a_test_ends_a_container_when_it_likes(core: Any, cluster: Cluster) -> None:
    core.create_namespaced_pod(HERE, pod("a"))
    cluster.scripted.end(cluster.pod("a"), Exit(7))
    cluster.wake()
    assert state(core).terminated.exit_code == 7


def test_pods_that_are_restarted_by_their_policy(core: Any, cluster: Cluster, clock: Clock) -> None:
    cluster.scripted.life = lambda given, container: Life(runs=SECOND, end=Exit(1))
    core.create_namespaced_pod(HERE, pod("a", restartPolicy="Always"))
    clock.passes(1)
    found = read(core)
    assert (found.status.phase, state(core).waiting.reason) == ("Running", "CrashLoopBackOff")
    assert found.status.container_statuses[0].last_state.terminated.exit_code == 1
    clock.passes(10)
    assert (state(core).running is not None, read(core).status.container_statuses[0].restart_count) == (True, 1)


def test_images_that_cannot_be_had(core: Any, cluster: Cluster, clock: Clock) -> None:
    cluster.scripted.life = lambda given, container: no_image(container["image"], "unauthorized")
    core.create_namespaced_pod(HERE, pod("a", image="example.org/a:1"))
    assert (read(core).status.phase, state(core).waiting.reason) == ("Pending", "ErrImagePull")
    assert "example.org/a:1: unauthorized" in state(core).waiting.message
    clock.passes(10)
    assert state(core).waiting.reason == "ImagePullBackOff"
    assert {"Failed", "BackOff"} <= reasons(core)
    cluster.scripted.life = lambda given, container: None
    clock.passes(10)
    assert read(core).status.phase == "Running"


def test_a_command_that_the_image_lacks(core: Any, cluster: Cluster) -> None:
    trouble = Trouble("StartError", 'exec: "nothing": executable file not found in $PATH', final=True)
    cluster.scripted.life = lambda given, container: Life(trouble=trouble)
    core.create_namespaced_pod(HERE, pod("a"))
    assert (read(core).status.phase, state(core).terminated.exit_code) == ("Failed", 128)
    assert state(core).terminated.reason == "StartError"


def test_secrets_that_are_missing_hold_a_pod_up(core: Any, clock: Clock, cluster: Cluster) -> None:
    reference = {"secretKeyRef": {"name": "s", "key": "token"}}
    core.create_namespaced_pod(HERE, pod("a", container={"env": [{"name": "TOKEN", "valueFrom": reference}]}))
    mounted = [{"name": "v", "secret": {"secretName": "s"}}]
    core.create_namespaced_pod(HERE, pod("b", volumes=mounted))
    assert state(core).waiting.reason == "CreateContainerConfigError"
    assert state(core).waiting.message == 'secret "s" not found'
    assert state(core, "b").waiting.reason == "ContainerCreating" and "FailedMount" in reasons(core, "b")
    core.create_namespaced_secret(HERE, secret("s", token="abc"))
    clock.passes(10)
    assert {read(core, name).status.phase for name in "ab"} == {"Running"}
    assert cluster.scripted.started(cluster.pod("a")).env["TOKEN"] == "abc"


def test_what_a_container_is_started_with(core: Any, cluster: Cluster) -> None:
    """A plugin shows the cards that were asked for; whoever asked for none gets what the image says."""
    cluster.add_node("gpu", **{"nvidia.com/gpu": "8"})
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)$$(A)"}]
    container = {"env": env, "command": ["sh", "-c", "echo $(B) $(date) $$(A)"]}
    core.create_namespaced_pod(HERE, pod("cards", limits={"nvidia.com/gpu": "2"}, container=container))
    core.create_namespaced_pod(HERE, pod("none"))
    cards = cluster.scripted.started(cluster.pod("cards"))
    assert cards.env["B"] == "1$(C)$(A)" and cards.command[2] == "echo 1$(C)$(A) $(date) $(A)"
    assert len(cards.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
    assert "NVIDIA_VISIBLE_DEVICES" not in cluster.scripted.started(cluster.pod("none")).env


@pytest.mark.parametrize("image", ["UPPER/case:1", "a:b:c", "a@sha256:12", "a//b", "-a"])
def test_names_of_images_that_nobody_could_pull(core: Any, image: str) -> None:
    core.create_namespaced_pod(HERE, pod("a", image=image))
    assert state(core).waiting.reason == "InvalidImageName"


@pytest.mark.parametrize(
    "image",
    ["a", "a/b:1.2_x", "Example.org:5000/a/b", "localhost/a__b@sha256:" + "0" * 64, "127.0.0.1:15000/team/bb:1"],
)
def test_names_of_images(core: Any, image: str) -> None:
    core.create_namespaced_pod(HERE, pod("a", image=image))
    assert state(core).running


def test_init_containers_come_first_and_may_fail(core: Any, cluster: Cluster, clock: Clock) -> None:
    lives = {"good": Life(runs=5 * SECOND), "bad": Life(runs=0, end=Exit(2))}
    cluster.scripted.life = lambda given, container: lives.get(container["name"])
    for name in ("good", "bad"):
        core.create_namespaced_pod(HERE, pod(name, initContainers=[{"name": name, "image": "x:1"}]))
    assert (read(core, "good").status.phase, state(core, "good").waiting.reason) == ("Pending", "PodInitializing")
    assert read(core, "good").status.init_container_statuses[0].state.running
    failed = read(core, "bad").status
    assert (failed.phase, failed.init_container_statuses[0].state.terminated.exit_code) == ("Failed", 2)
    clock.passes(5)
    assert read(core, "good").status.phase == "Running"


def test_a_deadline(core: Any, clock: Clock) -> None:
    core.create_namespaced_pod(HERE, pod("a", activeDeadlineSeconds=60))
    clock.passes(60)
    assert (read(core).status.phase, read(core).status.reason) == ("Failed", "DeadlineExceeded")


def test_a_pod_put_on_a_node_that_is_full(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("a", nodeName="one", limits={"nvidia.com/gpu": "1"}))
    assert (read(core).status.phase, read(core).status.reason) == ("Failed", "OutOfnvidia.com/gpu")


# --- what a cluster does to pods -------------------------------------------------------------------------------------


def test_eviction_by_the_node(core: Any, cluster: Cluster) -> None:
    core.create_namespaced_pod(HERE, pod("a"))
    cluster.kubelet.evict(cluster.pod("a"))
    found = read(core).status
    assert (found.phase, found.reason) == ("Failed", "Evicted")
    assert "low on resource" in found.message and disruption(core) == "TerminationByKubelet"
    assert "Evicted" in reasons(core)


def test_eviction_by_the_api(core: Any, cluster: Cluster) -> None:
    core.create_namespaced_pod(HERE, pod("a"))
    read(core)
    cluster.kubelet.stuck.add("a")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    core.create_namespaced_pod_eviction("a", HERE, body)
    assert disruption(core) == "EvictionByEvictionAPI" and read(core).metadata.deletion_timestamp


def test_preemption(core: Any, cluster: Cluster) -> None:
    cluster.add("PriorityClass", "high", value=1000)
    core.create_namespaced_pod(HERE, pod("a", requests={"cpu": "8"}))
    read(core)
    cluster.kubelet.stuck.add("a")
    core.create_namespaced_pod(HERE, pod("b", requests={"cpu": "8"}, priorityClassName="high"))
    assert disruption(core) == "PreemptionByScheduler" and read(core).metadata.deletion_timestamp
    assert "Preempted" in reasons(core) and read(core, "b").spec.node_name is None
    cluster.kubelet.stuck.clear()
    cluster.wake()
    assert read(core, "b").spec.node_name == "one"


def test_a_lost_node_keeps_its_pods_for_five_minutes(core: Any, cluster: Cluster, clock: Clock) -> None:
    core.create_namespaced_pod(HERE, pod("a"))
    soon = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    ]
    core.create_namespaced_pod(HERE, pod("b", tolerations=soon))
    read(core)
    cluster.nodes.lose("one")
    core.create_namespaced_pod(HERE, pod("new"))
    assert read(core, "new").spec.node_name == "one"  # nobody has noticed
    assert read(core, "new").status.container_statuses is None
    clock.passes(40)
    (ready,) = core.read_node("one").status.conditions
    assert (ready.status, ready.reason) == ("Unknown", "NodeStatusUnknown")
    core.create_namespaced_pod(HERE, pod("late"))
    (condition,) = read(core, "late").status.conditions
    assert "untolerated taint {node.kubernetes.io/unreachable: }" in condition.message
    clock.passes(60)
    assert read(core, "b").metadata.deletion_timestamp and read(core, "a").metadata.deletion_timestamp is None
    assert disruption(core, "b") == "DeletionByTaintManager"
    clock.passes(240)
    assert read(core, "a").metadata.deletion_timestamp
    clock.passes(3600)
    assert read(core, "a").status.phase == "Running"  # no kubelet says otherwise
    cluster.nodes.come_back("one")
    assert {each.metadata.name for each in core.list_namespaced_pod(HERE).items} == {"late"}


def test_pods_of_a_node_that_is_deleted_go(core: Any) -> None:
    core.create_namespaced_pod(HERE, pod("a"))
    read(core)
    core.delete_node("one")
    assert core.list_namespaced_pod(HERE).items == []


def test_terminating_may_never_end_but_by_force(core: Any, cluster: Cluster, clock: Clock) -> None:
    core.create_namespaced_pod(HERE, pod("a"))
    read(core)
    cluster.kubelet.stuck.add("a")
    core.delete_namespaced_pod("a", HERE)
    clock.passes(100_000)
    assert read(core).metadata.deletion_timestamp
    core.delete_namespaced_pod("a", HERE, grace_period_seconds=0)
    assert core.list_namespaced_pod(HERE).items == []


def test_a_pod_that_handles_its_signal_may_fail_or_succeed(core: Any, cluster: Cluster, clock: Clock) -> None:
    cluster.scripted.life = lambda given, container: Life(stops=10 * SECOND, stopped=Exit(0))
    core.create_namespaced_pod(HERE, pod("a"))
    read(core)
    core.delete_namespaced_pod("a", HERE)
    clock.passes(9)
    assert read(core).status.phase == "Running"
    clock.passes(1)
    assert core.list_namespaced_pod(HERE).items == []
