"""Backends as `server/config.yml` describes them: where machines may be bought. One model a `type`; types that ask for
the same share one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from chalicelib.domain.specs.credentials import (
    AccessKeyCreds,
    ApiKeyCreds,
    ApiTokenCreds,
    AWSCreds,
    AzureCreds,
    Confidential,
    GCPCreds,
    NebiusServiceAccountCreds,
    OCICreds,
    Secret,
    TensorDockCreds,
    VerdaCreds,
    Word,
    Words,
    by_type,
    one_of,
)
from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.reading import TAG, JsonSchema, Spec, Whole, fault, faults


def _shaped(pattern: str, what: str, example: str) -> Callable[[str], str]:
    known = re.compile(pattern)

    def check(text: str) -> str:
        if not known.fullmatch(text):
            raise fault("invalid-value", f"`{text[:80]}` isn't {what}", f"for example `{example}`")
        return text

    return check


# --- the large clouds -------------------------------------------------------------------------------------------------

_CREDS = "How to log in."
_PUBLIC = "Whether machines get public addresses."
_TAGS = "Tags put on what is made there."
_EXPERIMENTAL = "Instance types to offer that aren't offered by default."


class RegionalBackend(Spec):
    """What every backend with regions has."""

    regions: Words | None = Field(default=None, description="Regions to use; all unless set.")


_OWNER = _shaped(r"self|[0-9]{12}", "the owner of an image", "self` or `123456789012")


class AWSOSImage(Spec):
    """An image of an operating system."""

    name: Word = Field(description="The image's name.")
    owner: Annotated[str, AfterValidator(_OWNER)] = Field(
        default="self", description="The account it belongs to, 12 digits, or `self`."
    )
    user: Word = Field(description="The user to log in as.")


class AWSOSImages(Spec):
    """Images to start machines from, instead of the usual ones."""

    cpu: AWSOSImage | None = Field(default=None, description="For machines without a GPU.")
    nvidia: AWSOSImage | None = Field(default=None, description="For machines with NVIDIA GPUs.")


class AWSBackendConfig(RegionalBackend):
    """Amazon Web Services."""

    type: Literal["aws"] = Field(description="`aws`.")
    creds: AWSCreds = Field(description=_CREDS)
    vpc_name: Word | None = Field(default=None, description="The VPC's name, the same in all regions.")
    vpc_ids: dict[str, Word] | None = Field(default=None, description="The VPC's id by region.")
    default_vpcs: bool = Field(default=True, description="Use the default VPC where no other is named.")
    public_ips: bool = Field(default=True, description=_PUBLIC)
    iam_instance_profile: Word | None = Field(default=None, description="The instance profile of the machines.")
    tags: Tags | None = Field(default=None, description=_TAGS)
    os_images: AWSOSImages | None = Field(default=None, description="Images to start machines from.")
    experimental_instance_types: Words | None = Field(default=None, description=_EXPERIMENTAL)


_NETWORK = _shaped(r"[^/]+/[^/]+", "a resource group and a network", "my-group/my-network")
_SUBNET = _shaped(r"[^/]+/[^/]+/[^/]+", "a resource group, a network and a subnet", "my-group/my-network/my-subnet")
_IDENTITY = _shaped(r"[^/]+/[^/]+", "a resource group and a managed identity", "my-group/my-identity")


class AzureBackendConfig(RegionalBackend):
    """Microsoft Azure."""

    type: Literal["azure"] = Field(description="`azure`.")
    tenant_id: Word = Field(description="The tenant's id.")
    subscription_id: Word = Field(description="The subscription's id.")
    creds: AzureCreds = Field(description=_CREDS)
    resource_group: Word | None = Field(default=None, description="The resource group; one is made unless set.")
    vpc_ids: dict[str, Annotated[str, AfterValidator(_NETWORK)]] | None = Field(
        default=None, description="The network by location, as `group/network`."
    )
    subnet_ids: dict[str, Annotated[str, AfterValidator(_SUBNET)]] | None = Field(
        default=None, description="The subnet by location, as `group/network/subnet`."
    )
    public_ips: bool = Field(default=True, description=_PUBLIC + " Without, `vpc_ids` or `subnet_ids` is needed.")
    vm_managed_identity: Annotated[str, AfterValidator(_IDENTITY)] | None = Field(
        default=None, description="The machines' identity, as `group/identity`."
    )
    tags: Tags | None = Field(default=None, description=_TAGS)

    @model_validator(mode="after")
    def _networks(self) -> AzureBackendConfig:
        networks, subnets = self.vpc_ids or {}, self.subnet_ids or {}
        found = [
            (
                "exclusive",
                "this location has an entry in `vpc_ids` too",
                "keep one of the two",
                f"subnet_ids.{location}",
            )
            for location in subnets
            if location in networks
        ]
        if not self.public_ips and not networks and not subnets:
            hint = "add `vpc_ids` or `subnet_ids`"
            found.append(("missing", "machines without public addresses need a network", hint, "public_ips"))
        if found:
            raise faults(found)
        return self


class GCPBackendConfig(RegionalBackend):
    """Google Cloud."""

    type: Literal["gcp"] = Field(description="`gcp`.")
    project_id: Word = Field(description="The project's id.")
    creds: GCPCreds = Field(description=_CREDS)
    vpc_name: Word | None = Field(default=None, description="The VPC's name; the default one unless set.")
    subnetworks: dict[str, Word] | None = Field(default=None, description="Subnetworks by region, in `vpc_name`.")
    extra_vpcs: Words | None = Field(default=None, description="More VPCs for clusters with several interfaces.")
    roce_vpcs: Words | None = Field(default=None, description="The VPC for RoCE; one at most.", max_length=1)
    vpc_project_id: Word | None = Field(default=None, description="The project that shares its VPC.")
    public_ips: bool = Field(default=True, description=_PUBLIC)
    nat_check: bool = Field(default=True, description="Make sure machines without a public address have a NAT.")
    vm_service_account: Word | None = Field(default=None, description="The machines' service account.")
    tpu: bool = Field(default=False, description="Offer TPUs.")
    tags: Tags | None = Field(default=None, description=_TAGS)
    preview_features: tuple[Literal["g4"], ...] | None = Field(
        default=None, description="Has no effect any more; `g4` is the only value."
    )

    @model_validator(mode="after")
    def _subnetworks(self) -> GCPBackendConfig:
        if self.subnetworks and self.vpc_name is None:
            raise fault("missing", "`subnetworks` belong to a VPC", "add `vpc_name`", at="subnetworks")
        return self


class OCIBackendConfig(RegionalBackend):
    """Oracle Cloud Infrastructure."""

    type: Literal["oci"] = Field(description="`oci`.")
    creds: OCICreds = Field(description=_CREDS)
    compartment_id: Word | None = Field(default=None, description="The compartment; one is made unless set.")
    experimental_instance_types: Words | None = Field(default=None, description=_EXPERIMENTAL)


class NebiusBackendConfig(RegionalBackend):
    """Nebius."""

    type: Literal["nebius"] = Field(description="`nebius`.")
    creds: NebiusServiceAccountCreds = Field(description=_CREDS)
    projects: Words | None = Field(default=None, description="Ids of projects to use, one a region.")
    fabrics: Words | None = Field(default=None, description="InfiniBand fabrics to use; any unless set.")
    tags: Tags | None = Field(default=None, description=_TAGS)


# --- clusters that are there already ----------------------------------------------------------------------------------


class Kubeconfig(Confidential):
    """A kubeconfig, by path or by value."""

    filename: Word | None = Field(default=None, description="The file; or `data`.")
    data: Secret | None = Field(default=None, description="Its text; or `filename`.")

    @model_validator(mode="after")
    def _given_once(self) -> Kubeconfig:
        one_of(self, "filename", "data")
        return self


class KubernetesProxyJump(Spec):
    """How the cluster's nodes are reached from outside."""

    hostname: Word | None = Field(default=None, description="The address of a node; found out unless set.")
    port: Whole | None = Field(default=None, description="A port of it; found out unless set.", ge=1, le=65535)


class KubernetesContext(Spec):
    """A cluster: a context of the kubeconfig. Its name is the region."""

    name: Word = Field(description="The context's name.")
    proxy_jump: KubernetesProxyJump | None = Field(default=None, description="How its nodes are reached.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = ({"type": "string", "examples": ["my-cluster"]},)

    @classmethod
    def read(cls, written: Any) -> Any:
        return {"name": written} if isinstance(written, str) else written


class KubernetesBackendConfig(Spec):
    """Kubernetes clusters."""

    type: Literal["kubernetes"] = Field(description="`kubernetes`.")
    kubeconfig: Kubeconfig = Field(description="The kubeconfig.")
    contexts: tuple[KubernetesContext, ...] | None = Field(
        default=None, description="Contexts to use, each a cluster; the current one unless set.", min_length=1
    )
    proxy_jump: KubernetesProxyJump | None = Field(
        default=None, description="The older form for one cluster; with `contexts`, each has its own."
    )
    namespace: Word | None = Field(default=None, description="The older form for one cluster; `default` unless set.")

    @model_validator(mode="after")
    def _one_form(self) -> KubernetesBackendConfig:
        names = [context.name for context in self.contexts or ()]
        found = [
            ("duplicate", f"the context `{name[:60]}` is there twice", "keep one of the two", f"contexts.{place}")
            for place, name in enumerate(names)
            if name in names[:place]
        ]
        older = {"proxy_jump": "write it below the context", "namespace": "the context in the kubeconfig says it"}
        for field, hint in older.items():
            if self.contexts is not None and getattr(self, field) is not None:
                found.append(("exclusive", f"`{field}` can't go together with `contexts`", hint, field))
        if found:
            raise faults(found)
        return self


class SlurmPrivateKey(Confidential):
    """A private SSH key, by path or by value."""

    path: Word | None = Field(default=None, description="A file with the key; or `content`.")
    content: Secret | None = Field(default=None, description="The key; or `path`.")

    @model_validator(mode="after")
    def _given_once(self) -> SlurmPrivateKey:
        one_of(self, "path", "content")
        return self


_GPU = _shaped(r"([A-Za-z]+:)?[A-Za-z0-9][A-Za-z0-9 _.+-]*(:[0-9]+(MB|GB|TB))?", "a GPU", "H100` or `nvidia:H100:80GB")


class SlurmGPUPartitions(Spec):
    """Partitions whose nodes have this GPU."""

    gpu: Annotated[str, AfterValidator(_GPU)] = Field(
        description="The GPU: a name, with the vendor before and the memory behind where that is needed."
    )
    partitions: Words = Field(description="The partitions.", min_length=1)


class SlurmCluster(Spec):
    """A cluster, reached through its login node. Its name is the region."""

    name: Word = Field(description="A name for it.")
    hostname: Word = Field(description="The login node's address.")
    port: Whole | None = Field(default=None, description="The port of its SSH server; 22 unless set.", ge=1, le=65535)
    user: Word = Field(description="The user to log in as.")
    private_key: SlurmPrivateKey = Field(description="The key to log in with.")
    gpu_partitions: tuple[SlurmGPUPartitions, ...] | None = Field(
        default=None, description="Which partitions have which GPU; without, no job gets one."
    )
    cpu_partitions: Words | None = Field(default=None, description="Partitions for jobs without a GPU.")


class SlurmBackendConfig(Spec):
    """Slurm clusters."""

    type: Literal["slurm"] = Field(description="`slurm`.")
    clusters: tuple[SlurmCluster, ...] = Field(description="The clusters.", min_length=1)

    @model_validator(mode="after")
    def _names(self) -> SlurmBackendConfig:
        names = [cluster.name for cluster in self.clusters]
        found = [
            ("duplicate", f"the cluster `{name[:60]}` is there twice", "give it another name", f"clusters.{place}.name")
            for place, name in enumerate(names)
            if name in names[:place]
        ]
        if found:
            raise faults(found)
        return self


# --- GPU clouds -------------------------------------------------------------------------------------------------------


class KeyBackendConfig(RegionalBackend):
    """Clouds that need nothing but a key: CloudRift, Daytona, JarvisLabs, Lambda, Lium, Vultr."""

    type: Literal["cloudrift", "daytona", "jarvislabs", "lambda", "lium", "vultr"] = Field(description="Which.")
    creds: ApiKeyCreds = Field(description=_CREDS)


class CrusoeBackendConfig(RegionalBackend):
    """Crusoe Cloud."""

    type: Literal["crusoe"] = Field(description="`crusoe`.")
    project_id: Word = Field(description="The project's id.")
    creds: AccessKeyCreds = Field(description=_CREDS)


class CudoBackendConfig(RegionalBackend):
    """CUDO Compute."""

    type: Literal["cudo"] = Field(description="`cudo`.")
    project_id: Word = Field(description="The project's id.")
    creds: ApiKeyCreds = Field(description=_CREDS)


class DigitalOceanBackendConfig(RegionalBackend):
    """DigitalOcean, and AMD Developer Cloud, which is operated by it."""

    type: Literal["digitalocean", "amddevcloud"] = Field(description="Which.")
    project_name: Word | None = Field(default=None, description="The project; the default one unless set.")
    creds: ApiKeyCreds = Field(description=_CREDS)


class HotAisleBackendConfig(RegionalBackend):
    """Hot Aisle."""

    type: Literal["hotaisle"] = Field(description="`hotaisle`.")
    team_handle: Word = Field(description="The team's handle.")
    bare_metal: bool = Field(default=False, description="Offer whole machines without virtualisation.")
    creds: ApiKeyCreds = Field(description=_CREDS)


class RunpodBackendConfig(RegionalBackend):
    """Runpod."""

    type: Literal["runpod"] = Field(description="`runpod`.")
    community_cloud: bool = Field(default=False, description="Offer machines of the community cloud too.")
    creds: ApiKeyCreds = Field(description=_CREDS)


class SeewebBackendConfig(RegionalBackend):
    """Seeweb."""

    type: Literal["seeweb"] = Field(description="`seeweb`.")
    creds: ApiTokenCreds = Field(description=_CREDS)


class TensorDockBackendConfig(RegionalBackend):
    """TensorDock."""

    type: Literal["tensordock"] = Field(description="`tensordock`.")
    creds: TensorDockCreds = Field(description=_CREDS)


class VastAIBackendConfig(RegionalBackend):
    """Vast.ai."""

    type: Literal["vastai"] = Field(description="`vastai`.")
    community_cloud: bool = Field(default=True, description="Offer machines of the community cloud too.")
    creds: ApiKeyCreds = Field(description=_CREDS)


class VerdaBackendConfig(RegionalBackend):
    """Verda; `datacrunch` is its older name."""

    type: Literal["verda", "datacrunch"] = Field(description="Which name is used.")
    creds: VerdaCreds = Field(description=_CREDS)


class SkyBackendConfig(Spec):
    """The hosted marketplace."""

    type: Literal["dstack"] = Field(description="`dstack`.")
    base_backends: Words | None = Field(default=None, description="Its backends to use; all unless set.")


MODELS: tuple[type[Spec], ...] = (
    AWSBackendConfig,
    AzureBackendConfig,
    CrusoeBackendConfig,
    CudoBackendConfig,
    DigitalOceanBackendConfig,
    GCPBackendConfig,
    HotAisleBackendConfig,
    KeyBackendConfig,
    KubernetesBackendConfig,
    NebiusBackendConfig,
    OCIBackendConfig,
    RunpodBackendConfig,
    SeewebBackendConfig,
    SkyBackendConfig,
    SlurmBackendConfig,
    TensorDockBackendConfig,
    VastAIBackendConfig,
    VerdaBackendConfig,
)

AnyBackendConfig = Annotated[
    Annotated[AWSBackendConfig, Tag(TAG + "AWSBackendConfig")]
    | Annotated[AzureBackendConfig, Tag(TAG + "AzureBackendConfig")]
    | Annotated[CrusoeBackendConfig, Tag(TAG + "CrusoeBackendConfig")]
    | Annotated[CudoBackendConfig, Tag(TAG + "CudoBackendConfig")]
    | Annotated[DigitalOceanBackendConfig, Tag(TAG + "DigitalOceanBackendConfig")]
    | Annotated[GCPBackendConfig, Tag(TAG + "GCPBackendConfig")]
    | Annotated[HotAisleBackendConfig, Tag(TAG + "HotAisleBackendConfig")]
    | Annotated[KeyBackendConfig, Tag(TAG + "KeyBackendConfig")]
    | Annotated[KubernetesBackendConfig, Tag(TAG + "KubernetesBackendConfig")]
    | Annotated[NebiusBackendConfig, Tag(TAG + "NebiusBackendConfig")]
    | Annotated[OCIBackendConfig, Tag(TAG + "OCIBackendConfig")]
    | Annotated[RunpodBackendConfig, Tag(TAG + "RunpodBackendConfig")]
    | Annotated[SeewebBackendConfig, Tag(TAG + "SeewebBackendConfig")]
    | Annotated[SkyBackendConfig, Tag(TAG + "SkyBackendConfig")]
    | Annotated[SlurmBackendConfig, Tag(TAG + "SlurmBackendConfig")]
    | Annotated[TensorDockBackendConfig, Tag(TAG + "TensorDockBackendConfig")]
    | Annotated[VastAIBackendConfig, Tag(TAG + "VastAIBackendConfig")]
    | Annotated[VerdaBackendConfig, Tag(TAG + "VerdaBackendConfig")],
    by_type(*MODELS),
]
