"""What the server sets where an object says nothing."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from tests.backends.kubernetes.fake.quantities import amount
from tests.backends.kubernetes.fake.schema import Object


def _fill(given: dict[str, Any], **values: Any) -> None:
    for key, value in values.items():
        given.setdefault(key, value)


def _pod(pod: Object) -> None:
    _pod_spec(pod["spec"])
    pod["status"] = {"phase": "Pending", "qosClass": quality(pod["spec"])}


def _pod_spec(spec: dict[str, Any]) -> None:
    _fill(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        terminationGracePeriodSeconds=30,
        enableServiceLinks=True,
        securityContext={},
    )
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        _container(container)
    for volume in spec.get("volumes", ()):
        for kind, name in (("secret", "defaultMode"), ("configMap", "defaultMode"), ("projected", "defaultMode")):
            if kind in volume:
                _fill(volume[kind], **{name: 0o644})
        if "hostPath" in volume:
            _fill(volume["hostPath"], type="")
        if "image" in volume:
            _fill(volume["image"], pullPolicy=_pull_policy(volume["image"].get("reference", "")))


def _container(container: dict[str, Any]) -> None:
    _fill(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=_pull_policy(container.get("image", "")),
        resources={},
    )
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _fill(container[probe], timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
            if "httpGet" in container[probe]:
                _fill(container[probe]["httpGet"], path="/", scheme="HTTP")
    for variable in container.get("env", ()):
        if "fieldRef" in variable.get("valueFrom", {}):
            _fill(variable["valueFrom"]["fieldRef"], apiVersion="v1")
    resources = container["resources"]
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **resources.get("requests", {})}


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    return "Always" if "@" not in last and (":" not in last or last.endswith(":latest")) else "IfNotPresent"


def quality(spec: Mapping[str, Any]) -> str:
    sides: list[tuple[Mapping[str, str], Mapping[str, str]]] = []
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container["resources"]
        sides.append((_basic(resources.get("requests", {})), _basic(resources.get("limits", {}))))
    if not any(requests or limits for requests, limits in sides):
        return "BestEffort"
    whole = all(len(limits) == 2 and requests == limits for requests, limits in sides)
    return "Guaranteed" if whole else "Burstable"


def _basic(amounts: Mapping[str, str]) -> Mapping[str, str]:
    return {key: each for key, each in amounts.items() if key in ("cpu", "memory") and amount(each)}


def _service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    _fill(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        _fill(spec, allocateLoadBalancerNodePorts=True)
    for port in spec.get("ports", ()):
        _fill(port, targetPort=port["port"])
    service["status"] = {"loadBalancer": {}}


def _secret(secret: Object) -> None:
    _fill(secret, type="Opaque")
    if texts := secret.pop("stringData", None):
        coded = {key: base64.b64encode(each.encode()).decode() for key, each in texts.items()}
        secret["data"] = {**secret.get("data", {}), **coded}


def _claim(claim: Object) -> None:
    _fill(claim.setdefault("spec", {}), volumeMode="Filesystem")
    claim["status"] = {"phase": "Pending"}


def _stateful_set(given: Object) -> None:
    spec = given.setdefault("spec", {})
    _fill(spec, replicas=1, podManagementPolicy="OrderedReady", revisionHistoryLimit=10)
    _fill(spec.setdefault("updateStrategy", {}), type="RollingUpdate", rollingUpdate={"partition": 0})
    _fill(spec.setdefault("persistentVolumeClaimRetentionPolicy", {}), whenDeleted="Retain", whenScaled="Retain")
    if template := spec.get("template", {}).get("spec"):
        _pod_spec(template)
    for claim in spec.get("volumeClaimTemplates", ()):
        _fill(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        _claim(claim)
    given["status"] = {"replicas": 0}


def _namespace(namespace: Object) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]
    namespace["status"] = {"phase": "Active"}


def _class(storage_class: Object) -> None:
    _fill(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _priority(priority: Object) -> None:
    _fill(priority, preemptionPolicy="PreemptLowerPriority")


def _node(node: Object) -> None:
    node.setdefault("spec", {})
    node.setdefault("status", {})


def _range(limits: Object) -> None:
    """What of a container's limits and requests isn't said follows from the rest."""
    for item in limits.get("spec", {}).get("limits", ()):
        if item["type"] == "Container":
            default = {**item.get("max", {}), **item.get("default", {})}
            requests = {**item.get("min", {}), **default, **item.get("defaultRequest", {})}
            item |= {key: each for key, each in (("default", default), ("defaultRequest", requests)) if each}


KINDS: Mapping[str, Callable[[Object], None]] = {
    "Pod": _pod,
    "Service": _service,
    "Secret": _secret,
    "PersistentVolumeClaim": _claim,
    "StatefulSet": _stateful_set,
    "Namespace": _namespace,
    "StorageClass": _class,
    "PriorityClass": _priority,
    "Node": _node,
    "LimitRange": _range,
}


def set_in(given: Object, *, new: bool = True) -> None:
    """In place."""
    if kind := KINDS.get(given["kind"]):
        status = given.get("status")
        kind(given)
        if not new and status is not None:
            given["status"] = status
