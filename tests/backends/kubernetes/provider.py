"""Two clusters, as the conformance suite arranges them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from chalicelib.backends.spi import Backend, Container, ContainerMount, RegistryLogin
from chalicelib.domain import container_script
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import INSTALL, OTHER_INSTALL, request_for
from tests.backends.fakes.script import Answer, Fault
from tests.backends.kubernetes.bodies import T4, Body
from tests.backends.kubernetes.fake import errors, faults
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.kubelet import Exit
from tests.backends.kubernetes.fake.quantities import amount
from tests.backends.kubernetes.fake.schema import of_kind
from tests.backends.kubernetes.fake.scripted import Life, no_image

NAMESPACE = "jobs"
REGIONS = ("east", "west")
FIRST: Mapping[Call, str] = {  # the call to the server that a call of the backend begins with
    "check": "create selfsubjectaccessreviews",
    "offers": "list nodes",
    "create": "create pods",
    "describe": "get pods",
    "terminate": "delete pods",
    "list": "list pods",
}
ANSWERS: Mapping[Fails, Answer] = {
    "InvalidCredentials": errors.refusal(401, "Unauthorized", "Unauthorized").answer,
    "MissingPermission": errors.refusal(
        403, "Forbidden", 'pods is forbidden: User "u" cannot do this in API group "" in the namespace "jobs"'
    ).answer,
    "Throttled": faults.throttled(),
    "Transient": faults.broken(),
}
PULLING, ENDING = 5 * SECOND, 3 * SECOND
BIG = {"cpu": "64", "memory": "512Gi", "ephemeral_storage": "4000Gi"}


def populate(cluster: Cluster) -> None:
    """Nodes with and without GPUs, a namespace for jobs, and volumes whose disks are made for their first pods."""
    cluster.add_namespace(NAMESPACE)
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    lazy = "WaitForFirstConsumer"
    cluster.add("StorageClass", "standard", metadata=default, provisioner="x/y", volumeBindingMode=lazy)
    cluster.add_node(f"{cluster.name}-cpu", **BIG)
    gpu_taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    cluster.add_node(f"{cluster.name}-gpu", labels=T4, taints=[gpu_taint], **BIG, **{"nvidia.com/gpu": "4"})


def config_of(clusters: Iterable[Cluster], **context: Any) -> KubernetesBackendConfig:
    """All of them in one kubeconfig."""
    merged: Body = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    names = []
    for cluster in clusters:
        one = cluster.kubeconfig(namespace=NAMESPACE)
        names.append(one["current-context"])
        for part in ("clusters", "users", "contexts"):
            merged[part] += one[part]
    raw = {
        "type": "kubernetes",
        "kubeconfig": {"data": json.dumps(merged)},
        "contexts": [{"name": name, **context} for name in names],
    }
    return KubernetesBackendConfig.model_validate(raw)


class KubernetesProvider:
    secrets: Sequence[str] = ("admin-token",)

    def __init__(self, clusters: Sequence[Cluster], calls: Clusters) -> None:
        self._clusters, self._calls = {cluster.name: cluster for cluster in clusters}, calls
        self._lives: dict[str, Life] = {}
        for number, cluster in enumerate(clusters):
            cluster.scripted.life = self._life
            cluster.balancers.addresses = [f"203.0.{113 + number}.{last}" for last in range(1, 9)]

    def _life(self, pod: Body, container: Mapping[str, Any]) -> Life | None:
        usual = Life(pulling=PULLING, stops=ENDING)
        return None if container["name"] != "job" else self._lives.get(pod["metadata"]["name"], usual)

    # --- what the suite arranges -------------------------------------------------------------------------------------

    def existing(self) -> set[str]:
        """Pods, services, their addresses, and secrets that nothing would take away with its pod."""
        found = set()
        for cluster in self._clusters.values():
            cluster.settle()
            found |= {f"address {each}" for each in cluster.balancers.taken.values()}
            found |= {pod["metadata"]["name"] for pod in cluster.store.all("pods", NAMESPACE)}
            found |= {f"secret {each['metadata']['name']}" for each in cluster.store.all("secrets", NAMESPACE)} - {
                f"secret {name}" for name in found
            }
            found |= {f"service {each['metadata']['name']}" for each in cluster.store.all("services", NAMESPACE)}
        return found | self._claims()

    def _claims(self) -> set[str]:
        every = (cluster.store.all("persistentvolumeclaims", NAMESPACE) for cluster in self._clusters.values())
        return {each["metadata"]["name"] for claims in every for each in claims}

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        """In each cluster, because a plan needs only one that answers; but in one of them where all must answer: it is
        a matter of luck whether the others are called after the first has failed."""
        for cluster in list(self._clusters.values())[: 1 if call in ("check", "list") else None]:
            cluster.faults.script.faults.append(Fault(FIRST[call], ANSWERS[error], when, times))

    def page_fails(self) -> None:
        for cluster in self._clusters.values():
            further = Fault("list pods", ANSWERS["Transient"], fits=lambda call: "continue" in call.query)
            cluster.faults.script.faults.append(further)

    def region_down(self, region: str) -> None:
        self._clusters[region].faults.script.faults.append(Fault("*", ANSWERS["Transient"]))

    def invisible_for(self, seconds: float) -> None:
        """What exists shows."""

    def pages_of(self, size: int) -> None:
        self._calls.page = size

    def none_left(self, offer: Offer) -> None:
        cluster = self._clusters[offer.region]
        with cluster.store.changed:
            for node in cluster.store.all("nodes"):
                cluster.store.change(node, spec={"unschedulable": True})

    falls_short = none_left

    def zone_is_full(self, offer: Offer, zone: str, *, full: bool = True) -> None:
        """Its offers have no zones."""

    def quota(self, offer: Offer, machines: int) -> None:
        cluster = self._clusters[offer.region]
        hard = {"hard": {"pods": str(machines)}}
        known = cluster.store.find("resourcequotas", NAMESPACE, "most")
        if known is None:
            cluster.add("ResourceQuota", "most", NAMESPACE, spec=hard)
        else:
            with cluster.store.changed:
                cluster.store.change(known, spec=hard)
        cluster.settle()

    def lost(self, handles: Sequence[Handle]) -> None:
        cluster, pod = self._pod(handles)
        with cluster.store.changed:
            cluster.store.remove(of_kind("Pod"), pod)

    def reclaim(self, handles: Sequence[Handle]) -> None:
        raise NotImplementedError("it sells no spot machines")

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        made = [self._pod(list(backend.create(request_for(offer, name)))) for name in ("web", "db")]
        for (cluster, pod), labels in zip(
            made, ({"team": "web"}, {"dstack-install": INSTALL, "dstack-instance": "x"}), strict=True
        ):
            with cluster.store.changed:
                cluster.store.replace(of_kind("Pod"), pod, {**pod, "metadata": {**pod["metadata"], "labels": labels}})
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        raise NotImplementedError("it has no reservations")

    def in_reservation(self, reservation: str) -> int:
        raise NotImplementedError("it has no reservations")

    def container_ends(self, handles: Sequence[Handle], how: Literal["image", "exits"]) -> None:
        cluster, pod = self._pod(handles)
        image = pod["spec"]["containers"][0]["image"]
        self._lives[pod["metadata"]["name"]] = no_image(image) if how == "image" else Life(runs=0, end=Exit(7))
        cluster.wake()

    # --- what is there -----------------------------------------------------------------------------------------------

    def price(self, offer: Offer) -> float:
        return 0.0

    def user_data(self, handles: Sequence[Handle]) -> str:
        raise NotImplementedError("its machines are containers")

    def container(self, handles: Sequence[Handle]) -> Container:
        """Of the pod and its secret, as their kubelet reads them."""
        cluster, pod = self._pod(handles)
        (init,), (job,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
        assert job["command"] == container_script.prepared()
        secret = cluster.store.get(of_kind("Secret"), NAMESPACE, pod["metadata"]["name"])
        data = {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}
        env = {
            each["name"]: data[each["valueFrom"]["secretKeyRef"]["key"]] for each in job["env"] if "valueFrom" in each
        }
        pulls = [each["name"] for each in pod["spec"].get("imagePullSecrets", ())]
        login = None
        if secret["metadata"]["name"] in pulls:
            (entry,) = json.loads(data[".dockerconfigjson"])["auths"].values()
            login = RegistryLogin(entry["username"], entry["password"])
        security = job.get("securityContext", {})
        user = [str(security[each]) for each in ("runAsUser", "runAsGroup") if each in security]
        volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
        sizes = [each["emptyDir"]["sizeLimit"] for each in volumes.values() if "sizeLimit" in each.get("emptyDir", {})]
        claims = [
            ContainerMount(_claim(volumes[each["name"]]), each["mountPath"], each.get("readOnly", False))
            for each in job["volumeMounts"]
            if "persistentVolumeClaim" in volumes[each["name"]]
        ]
        return Container(
            image=job["image"],
            command=tuple(init["command"]),
            env=env,
            login=login,
            user=":".join(user),
            privileged=security.get("privileged", False),
            shm_mib=_mib(sizes[0]) if sizes else 0,
            mounts=tuple(claims),
        )

    def addresses(self, *, takes: float = 0.0, released_after: float = 0.0, fail: str | bool = False) -> None:
        for cluster in self._clusters.values():
            one = cluster.balancers
            one.takes, one.releases = round(takes * SECOND), round(released_after * SECOND)
            one.fails = fail if isinstance(fail, str) else ""
            if fail:
                one.addresses = []

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        """Those of services that select the pod."""
        cluster, pod = self._pod(handles)
        labels = pod["metadata"]["labels"].items()
        found = [each["spec"] for each in cluster.store.all("services", NAMESPACE)]
        return {
            port["port"]
            for spec in found
            if spec["selector"].items() <= labels
            for port in spec["ports"]
            if port["port"] == port["targetPort"]
        }

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        _, pod = self._pod(handles)
        disk = pod["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"]
        return _mib(disk) / 1024

    def tags(self, handle: Handle) -> dict[str, str]:
        _, pod = self._pod([handle])
        metadata = pod["metadata"]
        return {**metadata["labels"], **json.loads(metadata["annotations"].get("dstack-tags", "{}"))}

    def _pod(self, handles: Sequence[Handle]) -> tuple[Cluster, Body]:
        (handle,) = [each for each in handles if each.kind == "vm"]
        cluster = self._clusters[handle.data["region"]]
        return cluster, cluster.pod(handle.id, NAMESPACE)


def _mib(quantity: str) -> int:
    return int(amount(quantity) / (1 << 20))


def _claim(volume: Body) -> Handle:
    return Handle(kind="claim", id=volume["persistentVolumeClaim"]["claimName"])
