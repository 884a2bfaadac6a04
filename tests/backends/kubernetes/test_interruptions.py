"""What the guide's table says of pods, from the cluster to the job: why it ends, in the cluster's words, and which
`retry` begins it anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.domain.reasons import JobReason
from tests.backends.kubernetes.bodies import Body
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.kubelet import Exit
from tests.backends.kubernetes.fake.operations import ended
from tests.backends.kubernetes.fake.schema import of_kind
from tests.backends.kubernetes.fake.scripted import Life
from tests.backends.kubernetes.provider import NAMESPACE, config_of
from tests.engine.test_containers import Plane
from tests.engine.test_lost_containers import AFTER_ERRORS, ONCE_TAKEN_BACK, Contained
from tests.world.time import NOW

pytestmark = pytest.mark.slow
INTERRUPTED, UNREACHABLE = JobReason.interrupted_by_no_capacity, JobReason.instance_unreachable


class Place:
    """A cluster with room for one job, and a plane on the same clock that runs one there."""

    def __init__(self, folder: Path, cluster: Cluster, planes: list[Plane], retry: dict[str, Any]) -> None:
        self.cluster = cluster
        backend = KubernetesBackend(config_of([cluster]), now=cluster.now)
        planes.append(plane := Plane(folder, backend))
        self.contained = Contained(folder, retry, plane=plane)

    @property
    def pod(self) -> Body:
        (found,) = self.cluster.store.all("pods", NAMESPACE)
        return found


@pytest.fixture
def run_with(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Place]]:
    planes: list[Plane] = []
    cluster = Cluster(lambda: planes[-1].now() if planes else NOW, "east")
    cluster.add_namespace(NAMESPACE)
    cluster.add_node("one", cpu="2", memory="16Gi", ephemeral_storage="200Gi")
    cluster.scripted.life = lambda pod, container: Life(stops=None) if container["name"] == "job" else None
    with cluster.serving():
        yield lambda retry: Place(tmp_path, cluster, planes, retry)


def drained(cluster: Cluster, pod: Body) -> None:
    cluster.store.change(cluster.store.all("nodes")[0], spec={"unschedulable": True})
    ended(cluster.store, cluster.disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting"))


def evicted(cluster: Cluster, pod: Body) -> None:
    cluster.kubelet.evict(pod)


def preempted(cluster: Cluster, pod: Body) -> None:
    containers = [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "2"}}}]
    cluster.add("Pod", "urgent", "kube-system", spec={"priority": 1000, "containers": containers})


def deleted(cluster: Cluster, pod: Body) -> None:
    ended(cluster.store, pod)


def node_removed(cluster: Cluster, pod: Body) -> None:
    cluster.store.remove(of_kind("Node"), cluster.store.all("nodes")[0])


def node_silent(cluster: Cluster, pod: Body) -> None:
    cluster.nodes.lose("one")


def out_of_memory(cluster: Cluster, pod: Body) -> None:
    cluster.scripted.end(pod, Exit(137, "OOMKilled"))


CASES = {
    drained: (INTERRUPTED, "its node is gone"),
    evicted: (INTERRUPTED, "low on resource: memory"),
    preempted: (INTERRUPTED, "preempting to accommodate a higher priority pod"),
    node_removed: (INTERRUPTED, "its node is gone"),
    deleted: (INTERRUPTED, "somebody has deleted it"),
    node_silent: (INTERRUPTED, "Taint manager: deleting due to NoExecute taint"),
    out_of_memory: (UNREACHABLE, "more memory than it may"),
}


@pytest.mark.parametrize("retry", [ONCE_TAKEN_BACK, AFTER_ERRORS], ids=["interruption", "error"])
@pytest.mark.parametrize("happens", CASES, ids=lambda each: each.__name__)
def test_what_happens_to_a_pod_ends_its_job_for_its_reason(
    run_with: Callable[[dict[str, Any]], Place], happens: Callable[[Cluster, Body], None], retry: dict[str, Any]
) -> None:
    place, (reason, words) = run_with(retry), CASES[happens]
    with place.cluster.store.changed:
        happens(place.cluster, place.pod)
    place.cluster.wake()
    assert place.contained.ends()[0] is reason
    assert words in place.contained.plane.job.message
    assert place.contained.begins_anew is (retry is (ONCE_TAKEN_BACK if reason is INTERRUPTED else AFTER_ERRORS))
