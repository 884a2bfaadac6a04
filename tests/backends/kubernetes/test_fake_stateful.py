"""Stateful sets, and the probes by which their pods become ready, on the test's clock."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.clock import Clock
from tests.backends.kubernetes.conftest import Wire
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.scripted import Life

SETS = "/apis/apps/v1/namespaces/default/statefulsets"


def stateful_set(replicas: int = 1, probes: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    labels = {"app": "db"}
    pod = {"containers": [{**container, **(probes or {})}], "automountServiceAccountToken": False}
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    own = {
        "replicas": replicas,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": size}],
        **spec,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": own}


def http(path: str, **more: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": 80}, **more}


@pytest.fixture(autouse=True)
def disks(cluster: Cluster) -> None:
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    cluster.add("StorageClass", "standard", provisioner="test", metadata=default)


def names(cluster: Cluster, plural: str) -> list[str]:
    cluster.settle()
    return [each["metadata"]["name"] for each in cluster.store.all(plural, "default")]


def status(cluster: Cluster, name: str) -> Any:
    (found,) = cluster.pod(name)["status"]["containerStatuses"]
    return found


def test_pods_come_one_after_the_other_and_leave_their_claims(cluster: Cluster, wire: Wire) -> None:
    cluster.scripted.probes = lambda pod, path: "" if pod["metadata"]["name"] == "db-0" else "not yet"
    code, _, _ = wire("POST", SETS, stateful_set(3, {"readinessProbe": http("/ready")}))
    assert code == 201 and names(cluster, "pods") == ["db-0", "db-1"], "the third waits for the second"
    made = cluster.pod("db-0")
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("db-0", "db")
    assert made["metadata"]["labels"]["app"] == "db"
    found = wire("GET", f"{SETS}/db", None)[1]["status"]
    assert (found["replicas"], found["readyReplicas"]) == (2, 1)
    wire("PATCH", f"{SETS}/db", {"spec": {"replicas": 0}}, kind="application/merge-patch+json")
    cluster.scripted.probes = lambda pod, path: ""
    assert names(cluster, "pods") == []
    assert names(cluster, "persistentvolumeclaims") == ["data-db-0", "data-db-1"]


def test_another_template_is_another_pod_with_the_same_claim(cluster: Cluster, wire: Wire) -> None:
    wire("POST", SETS, stateful_set())
    before = cluster.pod("db-0")
    env = [{"name": "main", "env": [{"name": "A", "value": "1"}]}]
    template = {"spec": {"template": {"spec": {"containers": env}}}}
    wire("PATCH", f"{SETS}/db", template, kind="application/strategic-merge-patch+json")
    after = cluster.pod("db-0")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["volumes"] == before["spec"]["volumes"]
    assert after["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    found = wire("GET", f"{SETS}/db", None)[1]
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 2
    wire("DELETE", f"{SETS}/db", None)
    assert names(cluster, "pods") == []


def test_what_it_hasnt_or_what_makes_no_sense_is_refused(wire: Wire) -> None:
    other = stateful_set()
    other["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    for given, why in (
        (stateful_set(podManagementPolicy="Parallel"), "spec.podManagementPolicy"),
        (stateful_set(updateStrategy={"type": "OnDelete"}), "spec.updateStrategy"),
        (other, "`selector` does not match template `labels`"),
    ):
        code, body, _ = wire("POST", SETS, given)
        assert code == 422 and why in body["message"], body
    wire("POST", SETS, stateful_set())
    code, body, _ = wire("PATCH", f"{SETS}/db", {"spec": {"serviceName": "x"}}, kind="application/merge-patch+json")
    assert code == 422 and "fields other than 'replicas'" in body["message"]


def test_probes_say_when_it_has_started_and_is_ready_and_end_it_if_it_isnt_well(
    cluster: Cluster, wire: Wire, clock: Clock
) -> None:
    failing = {"/start", "/ready"}
    cluster.scripted.life = lambda pod, container: Life(stops=0)
    cluster.scripted.probes = lambda pod, path: "no" if path in failing else ""
    probes = {
        "startupProbe": http("/start", periodSeconds=2, failureThreshold=60),
        "livenessProbe": http("/live", failureThreshold=2),
        "readinessProbe": http("/ready"),
    }
    wire("POST", SETS, stateful_set(1, probes))

    def seen(seconds: int = 0) -> tuple[bool, bool, int]:
        clock.passes(seconds)
        found = status(cluster, "db-0")
        return found["started"], found["ready"], found["restartCount"]

    assert seen() == (False, False, 0)
    failing.remove("/start")
    assert seen(1) == (False, False, 0), "it is asked every two seconds"
    assert seen(1) == (True, False, 0)
    failing.remove("/ready")
    assert seen(10) == (True, True, 0)
    failing.add("/live")
    assert seen(10) == (True, True, 0), "once is no time"
    assert seen(10) == (False, False, 1)
    reasons = {(each["reason"], each["message"]) for each in cluster.store.all("events")}
    assert ("Unhealthy", "Liveness probe failed: no") in reasons
    failing.clear()
    seen(10)
    assert seen(2) == (True, True, 1), "another container in its place"
