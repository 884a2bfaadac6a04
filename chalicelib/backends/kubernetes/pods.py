"""The objects of one job: a pod, and a secret with the agent's settings and the login for the image's registry.

The pod's first container brings the agent into a folder that the job's container has as well, so the job's image needs
neither Python nor a shell. The pod is created behind a scheduling gate, then the secret, which the pod owns: it goes
when the pod goes. Then the gate is opened. So nothing is left behind, whenever that ends, and no permission to read
secrets is needed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson

from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.owners import REQUEST_TAG, all_tags
from chalicelib.backends.kubernetes.affinity import expression
from chalicelib.backends.kubernetes.config import ZONE, KubernetesContext, KubernetesGateways, KubernetesPodTerm
from chalicelib.backends.kubernetes.kubeconfig import Cluster
from chalicelib.backends.kubernetes.labels import labels_of, tags_of
from chalicelib.backends.kubernetes.volumes import CLAIM
from chalicelib.backends.spi import Container, CreateRequest, GangMember, RegistryLogin
from chalicelib.domain import container_script
from chalicelib.domain.owner import CALLED
from chalicelib.errors import ContainerFailed, Unfit

Body = dict[str, Any]
GATE, GANG_GATE = "dstack/secret", "dstack/gang"
GANG, RANK = "dstack/gang", "dstack/rank"  # labels of pods that start together
RUN = "dstack/run"  # the label with the id of the run
OPENED = "dstack/opened"  # the annotation with the time when their gates were opened
JOB, INIT = "job", "dstack-init"  # the containers
TYPE = "dstack-instance-type"  # the annotation with the name of the offer
LOGIN = ".dockerconfigjson"
GRACE = 120  # seconds that a job has left if somebody else deletes its pod
EXPOSED = "dstack-gateway"  # the annotation of a gateway's pod: how the world reaches it
NOBODY = 65_534
INIT_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "64Mi"},
    "limits": {"cpu": "1", "memory": "256Mi"},  # a namespace may demand limits
}
RDMA = re.compile(r"rdma|infiniband|roce|hca|hostdev|\bib", re.IGNORECASE)  # in the names of devices
NO_CARDS = ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},)  # or an image could ask for all cards of the node
DOCKER_HUB = "https://index.docker.io/v1/"

_USER = re.compile(r"(\d{1,10})(?::(\d{1,10}))?")


def pod_name(request: CreateRequest) -> str:
    """The same for the same request, and for no other."""
    called = dict(request.tags).get(CALLED, "")
    readable = re.sub(r"[^a-z0-9]+", "-", called.lower())[:36].strip("-")
    digest = sha256(request.token.encode()).hexdigest()[:20]
    return f"{readable}-{digest}" if readable[:1].isalpha() else f"dstack-{digest}"


def service_name(gang: GangMember) -> str:
    return f"gang-{sha256(gang.token.encode()).hexdigest()[:20]}"


def waits(body: Mapping[str, Any], gate: str = GATE) -> bool:
    """Is it behind this gate of ours? It may be behind those of others as well."""
    return any(each["name"] == gate for each in body["spec"].get("schedulingGates", ()))


def pod(request: CreateRequest, cluster: Cluster, level: str) -> Body:
    """`level`: what the namespace demands of pods, as Pod Security calls it."""
    container = request.container
    if container is None:
        raise Unfit("Kubernetes runs containers, and this request is for a machine.")
    name, choice, context = pod_name(request), _choice(request), cluster.context
    labels, rest = labels_of(all_tags(request))
    gang = container.gang
    user = _user(container)
    spec: Body = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "schedulingGates": [{"name": GATE}, *([{"name": GANG_GATE}] if gang else [])],
        "affinity": {"nodeAffinity": _affinity(request, choice, context), **_near(context)},
        "initContainers": [_init(name, context.init_image, container, choice)],
        "containers": [_job(name, request, container, choice, cluster)],
        "volumes": [{"name": "dstack", "emptyDir": {}}, *_volumes(container)],
    }
    fast = "resource" in choice and any(map(RDMA.search, context.gpu_resources))
    spec["containers"][0]["securityContext"] = _security(container, user, level, fast=fast)
    whole = _group(container, user)
    if level == "restricted":
        whole |= {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if whole:
        spec["securityContext"] = whole
    if context.node_selector:
        spec["nodeSelector"] = dict(context.node_selector)
    spec["tolerations"] = [each.model_dump(exclude_none=True) for each in context.tolerations]
    if taint := choice.get("taint"):
        spec["tolerations"].append({"key": taint, "operator": "Exists"})
    pull = [*([name] if container.login else []), *context.image_pull_secrets]
    if pull:
        spec["imagePullSecrets"] = [{"name": each} for each in pull]
    for field, value in (
        ("priorityClassName", context.priority_class_name),
        ("runtimeClassName", context.runtime_class_name),
        ("serviceAccountName", context.service_account_name),
    ):
        if value is not None:
            spec[field] = value
    own, further = _of_run(container, context)
    labels |= own
    spec |= further
    if request.open_ports and context.gateways is not None:
        spec["containers"][0]["ports"] = _ports(request.open_ports, context.gateways)
        spec["nodeSelector"] = {**context.node_selector, **context.gateways.node_selector}
        rest = {**rest, EXPOSED: context.gateways.expose}
    annotations = {
        TYPE: request.offer.instance.name,
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
        **rest,
        **(
            {"k8s.v1.cni.cncf.io/networks": ", ".join(context.networks)}
            if context.networks and "resource" in choice
            else {}
        ),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def secret(request: CreateRequest, owner: Mapping[str, Any]) -> Body:
    """What the pod `owner` needs and nobody else may read."""
    container = request.container
    assert container is not None
    name = owner["metadata"]["name"]
    data = {key: _encoded(value.encode()) for key, value in container.env.items()}
    if container.login is not None:
        data[LOGIN] = _encoded(_docker_login(container.image, container.login))
    belongs = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": owner["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels_of(all_tags(request))[0], "ownerReferences": [belongs]},
        "type": "kubernetes.io/dockerconfigjson" if container.login else "Opaque",
        "immutable": True,
        "data": data,
    }


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _docker_login(image: str, login: RegistryLogin) -> bytes:
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    registry = DOCKER_HUB if not is_host or first in ("docker.io", "index.docker.io") else first
    pair = _encoded(f"{login.username}:{login.password}".encode())
    entry = {"username": login.username, "password": login.password, "auth": pair}
    return orjson.dumps({"auths": {registry: entry}})


# --- whose it is ------------------------------------------------------------------------------------------------------


def is_of(body: Mapping[str, Any], request: CreateRequest) -> bool:
    """Was the object created for this request?"""
    wanted = {key: value for key, value in all_tags(request).items() if key.startswith("dstack-") and key != CALLED}
    return wanted[REQUEST_TAG] == request.token and wanted.items() <= tags_of(body).items()


# --- the pod's parts --------------------------------------------------------------------------------------------------


def _choice(request: CreateRequest) -> Mapping[str, Any]:
    """What the offer says of its nodes."""
    found = request.offer.backend_data.get("pod")
    if not isinstance(found, Mapping) or found["type"] != request.offer.instance.name:
        raise Unfit(f"{cleaned(request.offer.instance.name)} in {request.offer.region} isn't an offer of a cluster.")
    return found


def _affinity(request: CreateRequest, choice: Mapping[str, Any], context: KubernetesContext) -> Body:
    where = [expression(*each) for each in choice["where"]]
    where += [expression(each.key, each.operator, each.values) for each in context.node_affinity]
    if request.zones:
        where.append(expression(ZONE, "In", request.zones))
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": where}]}}


def _of_run(container: Container, context: KubernetesContext) -> tuple[dict[str, str], Body]:
    """What tells the pods of a run: labels, and parts of the spec."""
    gang, labels = container.gang, {RUN: container.run} if container.run else {}
    if gang:
        spec = {"hostname": f"node-{gang.rank}", "subdomain": service_name(gang)}
        return {**labels, GANG: gang.token, RANK: str(gang.rank)}, spec
    if not (context.spread and container.run):
        return labels, {}
    return labels, {"topologySpreadConstraints": [_spread(key, container.run) for key in context.spread]}


def _near(context: KubernetesContext) -> Body:
    """Wishes: an offer can't say what a condition would leave."""
    kinds = {"podAffinity": context.pod_affinity, "podAntiAffinity": context.pod_anti_affinity}
    return {
        kind: {"preferredDuringSchedulingIgnoredDuringExecution": [_weighted(each) for each in terms]}
        for kind, terms in kinds.items()
        if terms
    }


def _weighted(term: KubernetesPodTerm) -> Body:
    where = {"labelSelector": {"matchLabels": dict(term.labels)}, "topologyKey": term.topology_key}
    return {"weight": term.weight, "podAffinityTerm": where}


def _spread(key: str, run: str) -> Body:
    selector = {"matchLabels": {RUN: run}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


def _init(name: str, image: str, container: Container, choice: Mapping[str, Any]) -> Body:
    """Downloads the agent, and a Python for it, as nobody."""
    return {
        "name": INIT,
        "image": image,
        "command": list(container.command),
        "env": [*_settings(name, container), {"name": "DSTACK_PREPARE", "value": container_script.MOUNTED}],
        "volumeMounts": [{"name": "dstack", "mountPath": container_script.MOUNTED}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": choice.get("init", INIT_RESOURCES),
        "securityContext": {
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _settings(name: str, container: Container) -> list[Body]:
    """One by one: what else is in the secret is nobody's environment."""
    return [{"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}} for key in sorted(container.env)]


def _job(name: str, request: CreateRequest, container: Container, choice: Mapping[str, Any], cluster: Cluster) -> Body:
    has = "resource" in choice
    return {
        "name": JOB,
        "image": container.image,
        **({"imagePullPolicy": "Always"} if container.login else {}),  # the registry checks this login
        "command": container_script.prepared(),
        "env": [*_settings(name, container), *([] if has else NO_CARDS)],
        "volumeMounts": [{"name": "dstack", "mountPath": container_script.MOUNTED}, *_mounts(container, cluster)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _resources(request, choice, cluster),
    }


def _ports(ports: Sequence[int], gateways: KubernetesGateways) -> list[Body]:
    on_node = gateways.expose == "HostPort"
    return [{"containerPort": port, **({"hostPort": port} if on_node else {})} for port in ports]


def _resources(request: CreateRequest, choice: Mapping[str, Any], cluster: Cluster) -> Body:
    has, limits = request.offer.instance.resources, choice["limits"]
    requests = {"cpu": str(has.cpus), "memory": f"{has.memory_mib}Mi"}
    most: dict[str, str] = {}
    if request.disk_mib:
        requests["ephemeral-storage"] = f"{request.disk_mib}Mi"
    if limits["cpu"]:
        most["cpu"] = str(limits["cpu"])
    if limits["memory_mib"]:
        most["memory"] = f"{limits['memory_mib']}Mi"
    if limits["disk_mib"]:
        most["ephemeral-storage"] = f"{max(limits['disk_mib'], request.disk_mib)}Mi"
    if resource := choice.get("resource"):
        devices = {str(resource): str(len(has.gpus))}
        devices |= {name: str(amount) for name, amount in cluster.context.gpu_resources.items()}
        requests |= devices
        most |= devices
    return {"requests": requests, **({"limits": most} if most else {})}


def _volumes(container: Container) -> Iterator[Body]:
    if container.shm_mib:
        yield {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{container.shm_mib}Mi"}}
    for claim in dict.fromkeys(mount.volume.id for mount in container.mounts):
        yield {"name": f"claim-{_digest(claim)}", "persistentVolumeClaim": {"claimName": claim}}


def _mounts(container: Container, cluster: Cluster) -> Iterator[Body]:
    if container.shm_mib:
        yield {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108
    for mount in container.mounts:
        if mount.volume.kind != CLAIM:
            raise Unfit(f"{mount.volume.id} is no volume of a cluster.")
        if (namespace := mount.volume.data.get("namespace", cluster.namespace)) != cluster.namespace:
            raise Unfit(
                f"The claim {mount.volume.id} is in the namespace {namespace}, and jobs are in {cluster.namespace}."
            )
        read_only = {"readOnly": True} if mount.read_only else {}
        yield {"name": f"claim-{_digest(mount.volume.id)}", "mountPath": mount.path, **read_only}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _user(container: Container) -> Body:
    if not container.user:
        return {}
    found = _USER.fullmatch(container.user)
    if found is None:
        raise ContainerFailed(
            f"Kubernetes takes a user only by its number, and `user` is {container.user!r}.",
            hint="Write the number, for example `user: 1000` or `user: 1000:1000`.",
        )
    user, group = found.groups()
    return {"runAsUser": int(user), **({"runAsGroup": int(group)} if group else {})}


def _group(container: Container, user: Body) -> Body:
    """A new disk is root's, so a user who isn't root could write none of it without its group."""
    if not user.get("runAsUser") or all(mount.read_only for mount in container.mounts):
        return {}
    return {"fsGroup": user.get("runAsGroup") or user["runAsUser"], "fsGroupChangePolicy": "OnRootMismatch"}


def _security(container: Container, user: Body, level: str, *, fast: bool) -> Body:
    """As in `docker run`, unless the namespace demands more. `fast`: it has RDMA, which locks memory."""
    found: Body = dict(user)
    if container.privileged:
        found["privileged"] = True
    elif level == "restricted":
        found |= {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    elif fast and level != "baseline":
        found["capabilities"] = {"add": ["IPC_LOCK"]}
    return found
