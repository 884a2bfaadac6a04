"""What the fake's cluster refuses by its own rules: rights, quotas, limits, levels of security, classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.objects import claim, pod, secret

HERE = "default"
ROLES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
  - apiGroups: [""]
    resources: [nodes, pods]
    verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: worker}
rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [get, watch, create]
  - apiGroups: [""]
    resources: [pods/exec]
    verbs: [get]
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [known]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: worker}
"""


def message(status: int, call: Callable[..., Any], *given: Any, **named: Any) -> str:
    from kubernetes.client import ApiException

    with pytest.raises(ApiException) as caught:
        call(*given, **named)
    assert caught.value.status == status, caught.value.body
    text: str = json.loads(caught.value.body)["message"]
    return text


@pytest.fixture
def worker(cluster: Cluster) -> Any:
    """A client with few rights."""
    from kubernetes import client, config

    cluster.users.user("token", "worker")
    cluster.users.grant("worker", ROLES, HERE)
    return client.CoreV1Api(config.new_client_from_config_dict(cluster.kubeconfig("token")))


def test_nobody_does_more_than_their_roles_say(worker: Any, core: Any, cluster: Cluster) -> None:
    assert len(worker.list_node().items) == 1
    worker.create_namespaced_pod(HERE, pod("a"))
    assert worker.read_namespaced_pod("a", HERE).status.phase == "Running"
    assert message(403, worker.delete_namespaced_pod, "a", HERE) == (
        'pods "a" is forbidden: User "worker" cannot delete resource "pods" in API group "" in the namespace "default"'
    )
    core.create_namespace({"metadata": {"name": "other"}})
    assert 'in the namespace "other"' in message(403, worker.read_namespaced_pod, "a", "other")
    assert worker.list_namespaced_pod("other").items == []  # the cluster-wide right
    assert message(403, worker.list_persistent_volume) == (
        'persistentvolumes is forbidden: User "worker" cannot list resource "persistentvolumes" in API group "" '
        "at the cluster scope"
    )
    for name, status in (("known", 404), ("other", 403)):
        message(status, worker.read_namespaced_secret, name, HERE)


def test_a_websocket_needs_the_right_to_create(worker: Any) -> None:
    from kubernetes.client import ApiException
    from kubernetes.stream import stream

    worker.create_namespaced_pod(HERE, pod("a"))
    with pytest.raises(ApiException, match="403"):
        stream(worker.connect_get_namespaced_pod_exec, "a", HERE, command=["true"])


def test_who_asks_is_told_what_they_may_do(worker: Any) -> None:
    from kubernetes import client

    reviews = client.AuthorizationV1Api(worker.api_client)

    def allowed(**attributes: str) -> bool:
        body = {"spec": {"resourceAttributes": attributes}}
        found: bool = reviews.create_self_subject_access_review(body).status.allowed
        return found

    assert allowed(verb="create", resource="pods", namespace=HERE)
    assert not allowed(verb="create", resource="pods", namespace="other")
    assert not allowed(verb="create", resource="pods")
    assert allowed(verb="get", resource="pods", subresource="exec", namespace=HERE)
    assert not allowed(verb="get", resource="pods", subresource="log", namespace=HERE)
    assert allowed(verb="list", resource="nodes")


def test_a_token_that_nobody_has(cluster: Cluster) -> None:
    from kubernetes import client, config

    with config.new_client_from_config_dict(cluster.kubeconfig("stolen")) as api:
        assert message(401, client.CoreV1Api(api).list_node) == "Unauthorized"


# --- quotas ----------------------------------------------------------------------------------------------------------


def quota(core: Any, **hard: str) -> None:
    core.create_namespaced_resource_quota(HERE, {"metadata": {"name": "q"}, "spec": {"hard": hard}})


def test_a_quota_counts_what_is_there(core: Any) -> None:
    quota(core, **{"requests.cpu": "1", "requests.nvidia.com/gpu": "2", "pods": "10", "requests.memory": "1Gi"})
    small = {"cpu": "500m", "memory": "512Mi"}
    core.create_namespaced_pod(HERE, pod("a", requests=small))
    used = core.read_namespaced_resource_quota("q", HERE).status.used
    assert used == {"requests.cpu": "500m", "requests.nvidia.com/gpu": "0", "pods": "1", "requests.memory": "512Mi"}
    assert message(403, core.create_namespaced_pod, HERE, pod("b", requests={"cpu": "600m", "memory": "1Gi"})) == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=600m,requests.memory=1Gi, '
        "used: requests.cpu=500m,requests.memory=512Mi, limited: requests.cpu=1,requests.memory=1Gi"
    )
    gpus = pod("b", requests=small, limits={"nvidia.com/gpu": "3"})
    assert "requested: requests.nvidia.com/gpu=3" in message(403, core.create_namespaced_pod, HERE, gpus)
    core.delete_namespaced_pod("a", HERE)
    assert core.read_namespaced_resource_quota("q", HERE).status.used["pods"] == "0"
    assert core.create_namespaced_pod(HERE, pod("b", requests={"cpu": "1", "memory": "1Gi"}))


def test_a_quota_wants_to_be_told(core: Any) -> None:
    quota(core, **{"requests.cpu": "1", "limits.memory": "1Gi"})
    wanted = "failed quota: q: must specify limits.memory,requests.cpu"
    assert wanted in message(403, core.create_namespaced_pod, HERE, pod("a"))


def test_quotas_of_other_things(core: Any) -> None:
    quota(core, **{"secrets": "1", "requests.storage": "5Gi"})
    core.create_namespaced_secret(HERE, secret("a"))
    assert "exceeded quota: q" in message(403, core.create_namespaced_secret, HERE, secret("b"))
    big = claim("big", "6Gi")
    assert "requested: requests.storage=6Gi" in message(403, core.create_namespaced_persistent_volume_claim, HERE, big)


def test_limits_of_a_namespace(core: Any) -> None:
    item = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "2"}}
    core.create_namespaced_limit_range(HERE, {"metadata": {"name": "l"}, "spec": {"limits": [item]}})
    made = core.create_namespaced_pod(HERE, pod("a")).spec.containers[0].resources
    assert (made.limits, made.requests) == ({"cpu": "1"}, {"cpu": "100m"})
    refused = message(403, core.create_namespaced_pod, HERE, pod("b", limits={"cpu": "3"}))
    assert "maximum cpu usage per Container is 2, but limit is 3" in refused


# --- security and classes --------------------------------------------------------------------------------------------

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.parametrize(
    ("level", "security", "more", "why"),
    [
        ("restricted", RESTRICTED, {}, ""),
        ("restricted", {}, {}, "allowPrivilegeEscalation != false"),
        ("restricted", {**RESTRICTED, "runAsUser": 0}, {}, "runAsUser=0"),
        ("restricted", {**RESTRICTED, "runAsNonRoot": None}, {}, "runAsNonRoot != true"),
        ("restricted", {**RESTRICTED, "capabilities": {}}, {}, "unrestricted capabilities"),
        ("restricted", RESTRICTED, {"hostNetwork": True}, "host namespaces (hostNetwork=true)"),
        ("baseline", {}, {}, ""),
        ("baseline", {"privileged": True}, {}, "privileged"),
        ("baseline", {"capabilities": {"add": ["IPC_LOCK"]}}, {}, 'must not include "IPC_LOCK"'),
        ("baseline", {}, {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, 'hostPath volumes (volume "v")'),
        ("privileged", {"privileged": True}, {}, ""),
    ],
)
def test_levels_of_security(
    core: Any, cluster: Cluster, level: str, security: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    cluster.add_namespace("safe", **{"pod-security.kubernetes.io/enforce": level})
    body = pod("a", container={"securityContext": security}, **more)
    if not why:
        assert core.create_namespaced_pod("safe", body)
        return
    refused = message(403, core.create_namespaced_pod, "safe", body)
    assert refused.startswith(f'pods "a" is forbidden: violates PodSecurity "{level}:latest": ') and why in refused


def test_classes_and_accounts_that_there_are_not(core: Any, cluster: Cluster) -> None:
    for more, why in (
        ({"priorityClassName": "x"}, "no PriorityClass with name x was found"),
        ({"runtimeClassName": "x"}, 'pod rejected: RuntimeClass "x" not found'),
        ({"serviceAccountName": "x"}, 'error looking up service account default/x: serviceaccount "x" not found'),
    ):
        assert message(403, core.create_namespaced_pod, HERE, pod("a", **more)) == f'pods "a" is forbidden: {why}'
    cluster.admission.webhooks["policy.example.org"] = lambda given: (
        "not on a Friday" if given["kind"] == "Pod" else None
    )
    denied = 'admission webhook "policy.example.org" denied the request: not on a Friday'
    assert message(403, core.create_namespaced_pod, HERE, pod("a")) == denied
    assert core.create_namespaced_secret(HERE, secret("s"))


def test_classes_say_what_pods_do_not(core: Any, cluster: Cluster) -> None:
    cluster.add("PriorityClass", "usual", value=7, globalDefault=True)
    scheduling = {"nodeSelector": {"gpu": "yes"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    cluster.add("RuntimeClass", "nvidia", handler="nvidia", scheduling=scheduling)
    made = core.create_namespaced_pod(HERE, pod("a", runtimeClassName="nvidia")).spec
    assert (made.priority, made.priority_class_name, made.node_selector) == (7, "usual", {"gpu": "yes"})
    assert made.tolerations[0].key == "gpu"
    cluster.add(
        "StorageClass",
        "d",
        provisioner="x",
        metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    )
    bound = core.create_namespaced_persistent_volume_claim(HERE, claim("c"))
    assert bound.spec.storage_class_name == "d"
    none = core.create_namespaced_persistent_volume_claim(HERE, claim("n", storageClassName=""))
    assert none.spec.storage_class_name == ""
    assert core.read_namespaced_persistent_volume_claim("c", HERE).status.phase == "Bound"
    assert core.read_namespaced_persistent_volume_claim("n", HERE).status.phase == "Pending"
