"""The part of `server/config.yml` for Kubernetes clusters."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from chalicelib.backends.configs import shaped
from chalicelib.backends.kubernetes.addresses import names_local_server
from chalicelib.backends.kubernetes.affinity import is_number
from chalicelib.domain.container_script import GATEWAY_IMAGE
from chalicelib.domain.specs.credentials import Confidential, FileName, Secret, Text, Texts, one_of
from chalicelib.domain.specs.quantities import Memory
from chalicelib.domain.specs.reading import Integer, JsonSchema, Spec, fault, faults

INIT_IMAGE = "busybox:1.37"
ZONE = "topology.kubernetes.io/zone"

_LABEL = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"(?=.{1,253}/)[a-z0-9]([-a-z0-9.]*[a-z0-9])?/")
_NAMED = shaped(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "a name that Kubernetes takes", "my-name")
_RESOURCE = shaped(r"[a-z0-9][-a-z0-9.]*/[A-Za-z0-9][-_.A-Za-z0-9]*", "the name of a device's resource", "rdma/ib")


def _device(name: str) -> str:
    if name.startswith("hugepages-"):
        text = f"`{name[:80]}` is memory, and jobs can't have huge pages"
        raise fault("invalid-value", text, "remove it: RDMA and NCCL work without huge pages")
    return _RESOURCE(name)


def is_label_key(key: str) -> bool:
    prefix = _PREFIX.match(key)
    return bool(_LABEL.fullmatch(key[prefix.end() :] if prefix else key))


def is_label_value(value: str) -> bool:
    return not value or bool(_LABEL.fullmatch(value))


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not (is_label_key(key) and is_label_value(value)):
            raise fault("invalid-value", f"`{key}: {value}` isn't a label", "for example `pool: gpu`", at=key)
    return labels


def _key(key: str) -> str:
    if not is_label_key(key):
        raise fault(
            "invalid-value", f"`{key[:80]}` isn't the key of a label or an annotation", "for example `example.com/pool`"
        )
    return key


Name = Annotated[str, AfterValidator(_NAMED)]
Resource = Annotated[str, AfterValidator(_device)]
Key = Annotated[str, AfterValidator(_key)]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]


class Kubeconfig(Confidential):
    """A kubeconfig, by path or by value, or the server's own service account."""

    filename: FileName = Field(
        default=None, description="The file, where the server runs, which only global admins may name; or `data`."
    )
    data: Secret | None = Field(default=None, description="Its text; or `filename`.")
    in_cluster: Literal[True] | None = Field(
        default=None,
        description="The service account of the pod that the server runs in, which only global admins may use; "
        "in place of a kubeconfig.",
    )

    @model_validator(mode="after")
    def _given_once(self) -> Kubeconfig:
        one_of(self, "filename", "data", "in_cluster")
        return self


class KubernetesProxyJump(Spec):
    """How to reach the cluster's nodes from outside. It isn't used: agents call the server."""

    hostname: Text | None = Field(default=None, description="The address of a node.")
    port: Integer | None = Field(default=None, description="Its port.", ge=1, le=65535)


class KubernetesToleration(Spec):
    """A taint of nodes that jobs may run on all the same."""

    key: Text | None = Field(default=None, description="The taint's key; any unless set.")
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="`Equal` compares the value, `Exists` doesn't."
    )
    value: str | None = Field(default=None, description="The taint's value, for `Equal`.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect; any unless set."
    )

    @model_validator(mode="after")
    def _whole(self) -> KubernetesToleration:
        if self.operator == "Exists" and self.value is not None:
            raise fault("exclusive", "`Exists` compares no value", "remove `value`", at="value")
        if self.operator == "Equal" and self.key is None:
            raise fault("missing", "`Equal` needs a `key`", "give it, or write `operator: Exists`", at="key")
        return self


class KubernetesNodeRequirement(Spec):
    """What a label of a node must be like, as in a node affinity."""

    key: Key = Field(description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        default="In", description="`Gt` and `Lt` compare whole numbers. A node without the label meets `NotIn`."
    )
    values: Texts = Field(default=(), description="Several for `In` and `NotIn`, one number for `Gt` and `Lt`.")

    @model_validator(mode="after")
    def _whole(self) -> KubernetesNodeRequirement:
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            raise fault("exclusive", f"`{self.operator}` compares no values", "remove `values`", at="values")
        if self.operator in ("In", "NotIn") and not self.values:
            raise fault("missing", f"`{self.operator}` needs `values`", "give at least one", at="values")
        if self.operator in ("Gt", "Lt") and not (len(self.values) == 1 and is_number(self.values[0])):
            raise fault(
                "invalid-value", f"`{self.operator}` needs one whole number", "for example `['8']`", at="values"
            )
        if wrong := next((value for value in self.values if not is_label_value(value)), None):
            raise fault("invalid-value", f"`{wrong[:80]}` isn't a label's value", "for example `gpu`", at="values")
        return self


class KubernetesTopology(Spec):
    """What is close together, for the nodes of one task."""

    key: Key = Field(
        default=ZONE, description="The label whose value nodes that are close together share, such as that of a rack."
    )
    required: bool = Field(
        default=False,
        description="Whether a task goes nowhere if no such place has room for all its nodes. Otherwise they are "
        "spread then.",
    )


class KubernetesPodTerm(Spec):
    """Pods, and what is near them."""

    labels: Labels = Field(description="Labels of pods in the namespace of jobs.", min_length=1)
    topology_key: Key = Field(
        default="kubernetes.io/hostname",
        description="The label of nodes that says what is near: nodes with the same value of it.",
    )
    weight: Integer = Field(default=100, description="How much it counts beside other wishes.", ge=1, le=100)


class KubernetesAccelerator(Spec):
    """Devices whose nodes have no labels that say what they are."""

    resource: Resource = Field(description="The resource of the device plugin, for example `habana.ai/gaudi`.")
    node_selector: Labels = Field(default={}, description="Labels of the nodes that have them; all unless set.")
    name: Text = Field(description="The name by which jobs request it, for example `Gaudi2`.")
    memory: Memory = Field(description="The memory of one.")
    vendor: Literal["nvidia", "amd", "google", "intel", "tenstorrent"] = Field(description="Who makes it.")


def _range(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise fault(
            "invalid-value", f"`{text[:60]}` isn't a range of addresses", "for example `203.0.113.0/24`"
        ) from None
    return text


class KubernetesGateways(Spec):
    """How gateways run in a cluster: as pods that the world reaches."""

    expose: Literal["LoadBalancer", "HostPort"] = Field(
        default="LoadBalancer",
        description="`LoadBalancer`: at a Service of this type. `HostPort`: at ports 80 and 443 of the pod's node.",
    )
    image: Text | None = Field(
        default=None,
        description="An image of Debian or Ubuntu, where nginx and its Lua module are installed unless it has them; "
        f"`{GATEWAY_IMAGE}` unless set.",
    )
    node_selector: Labels = Field(
        default={}, description="Labels that a gateway's node must have, besides those of the context."
    )
    annotations: dict[Key, str] = Field(
        default={}, description="Annotations of the Service, for example for an internal load balancer."
    )
    load_balancer_class: Text | None = Field(default=None, description="The Service's load balancer class.")
    load_balancer_source_ranges: tuple[Annotated[Text, AfterValidator(_range)], ...] = Field(
        default=(), description="The only addresses from which it is reached, as ranges; all unless set."
    )
    external_traffic_policy: Literal["Local", "Cluster"] = Field(
        default="Local",
        description="`Local` keeps the callers' addresses, which limits of services count by. `Cluster` is for load "
        "balancers that need it.",
    )

    @model_validator(mode="after")
    def _of_the_service(self) -> KubernetesGateways:
        if self.expose == "HostPort":
            found = [
                (
                    "exclusive",
                    f"with `HostPort` there is no Service, so `{field}` has no meaning",
                    f"remove `{field}`",
                    field,
                )
                for field in (
                    "annotations",
                    "load_balancer_class",
                    "load_balancer_source_ranges",
                    "external_traffic_policy",
                )
                if getattr(self, field) != type(self).model_fields[field].default
            ]
            if found:
                raise faults(found)
        return self


class KubernetesContext(Spec):
    """A cluster: a context of the kubeconfig. Its name is the region."""

    name: Text = Field(description="The context's name.")
    namespace: Name | None = Field(
        default=None, description="The namespace of the jobs; that of the context unless set, or `default`."
    )
    init_image: Text = Field(
        default=INIT_IMAGE,
        description="A small image with a shell, `wget` and `tar`, which brings the agent into each pod.",
    )
    node_selector: Labels = Field(default={}, description="Labels that a node must have to be used.")
    node_affinity: tuple[KubernetesNodeRequirement, ...] = Field(
        default=(), description="What else must hold for the labels of a node that is used."
    )
    cluster_topology: KubernetesTopology = Field(
        default=KubernetesTopology(), description="Where the nodes of one task go together."
    )
    spread: tuple[Key, ...] = Field(
        default=(),
        description="Labels of nodes, such as `kubernetes.io/hostname`, over whose values a service's "
        "replicas are spread where there is room.",
    )
    pod_affinity: tuple[KubernetesPodTerm, ...] = Field(
        default=(), description="Pods near which jobs run where there is room; a wish, no condition."
    )
    pod_anti_affinity: tuple[KubernetesPodTerm, ...] = Field(
        default=(), description="Pods away from which jobs run where there is room; a wish, no condition."
    )
    tolerations: tuple[KubernetesToleration, ...] = Field(
        default=(), description="Taints of nodes that may be used; those of GPUs are tolerated by jobs with GPUs."
    )
    accelerators: tuple[KubernetesAccelerator, ...] = Field(
        default=(), description="Devices that no label of their nodes describes."
    )
    privileged: bool = Field(
        default=False,
        description="Whether jobs may be privileged, where the namespace allows it. Such a job can take over its node.",
    )
    priority_class_name: Text | None = Field(default=None, description="The pods' priority class.")
    runtime_class_name: Text | None = Field(default=None, description="The pods' runtime class.")
    service_account_name: Text | None = Field(
        default=None, description="The pods' service account. Its token is never mounted."
    )
    image_pull_secrets: Texts = Field(
        default=(), description="Secrets of the namespace with logins for registries, for all pods."
    )
    gpu_resources: dict[Resource, Annotated[Integer, Field(ge=1, le=1_000)]] = Field(
        default={}, description="Devices that each pod with GPUs gets besides, such as `rdma/ib: 1`."
    )
    networks: Texts = Field(
        default=(), description="Networks of Multus that pods with GPUs join besides: `name` or `namespace/name`."
    )
    gateways: KubernetesGateways | None = Field(
        default=None, description="How gateways run in this cluster; unless set, none do. `{}` is enough."
    )
    proxy_jump: KubernetesProxyJump | None = Field(
        default=None, description="How to reach its nodes. Accepted, but not needed."
    )

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = ({"type": "string", "examples": ["my-cluster"]},)

    @classmethod
    def read(cls, written: Any) -> Any:
        return {"name": written} if isinstance(written, str) else written


class KubernetesBackendConfig(Spec):
    """Kubernetes clusters."""

    type: Literal["kubernetes"] = Field(description="`kubernetes`.")
    kubeconfig: Kubeconfig = Field(description="The kubeconfig.")
    contexts: tuple[KubernetesContext, ...] | None = Field(
        default=None, description="Contexts to use, one per cluster; the current one unless set.", min_length=1
    )
    proxy_jump: KubernetesProxyJump | None = Field(
        default=None, description="The older form for one cluster. Accepted, but not needed."
    )
    namespace: Name | None = Field(default=None, description="The older form for one cluster; `default` unless set.")

    @model_validator(mode="after")
    def _one_form(self) -> KubernetesBackendConfig:
        names = [context.name for context in self.contexts or ()]
        found = [
            ("duplicate", f"the context `{name[:60]}` appears twice", "keep one of the two", f"contexts.{place}")
            for place, name in enumerate(names)
            if name in names[:place]
        ]
        older = {"proxy_jump": "write it below the context", "namespace": "write it below the context"}
        for field, hint in older.items():
            if self.contexts is not None and getattr(self, field) is not None:
                found.append(("exclusive", f"`{field}` can't go together with `contexts`", hint, field))
        if self.kubeconfig.in_cluster and len(names) > 1:
            text = "the server is in one cluster, so there is one context"
            found.append(("exclusive", text, "keep one of them, or give a kubeconfig", "contexts.1"))
        if found:
            raise faults(found)
        return self

    def servers_own(self) -> str:
        """The field that makes the control plane use its own files, credentials or network; empty if none does."""
        own = next((f"kubeconfig.{each}" for each in ("filename", "in_cluster") if getattr(self.kubeconfig, each)), "")
        contexts = [context.name for context in self.contexts or ()]
        return own or ("kubeconfig.data" if names_local_server(self.kubeconfig.data or "", contexts) else "")
