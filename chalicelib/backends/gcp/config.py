"""The part of `server/config.yml` for a Google Cloud project."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from chalicelib.backends.configs import CREDS, PUBLIC_IPS, TAGS, RegionalBackend, shaped
from chalicelib.domain.specs.credentials import (
    Confidential,
    DefaultCreds,
    FileName,
    Secret,
    Text,
    Texts,
    by_type,
    one_of,
)
from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.reading import TAG, Spec, fault

LABEL_KEY, LABEL_VALUE, MOST_LABELS = r"[a-z][-_a-z0-9]{0,62}", r"[-_a-z0-9]{0,63}", 64
LABELS = "a key begins with a letter; key and value have up to 63 lower-case letters, digits, `-` and `_`"


def is_label(key: str, value: str) -> bool:
    return bool(re.fullmatch(LABEL_KEY, key) and re.fullmatch(LABEL_VALUE, value))


class GCPServiceAccountCreds(Confidential):
    """A service account's key, as JSON."""

    type: Literal["service_account"] = Field(description="`service_account`.")
    filename: FileName = Field(
        default=None,
        description="A file with the key, where the server runs, which only global admins may name; or `data`.",
    )
    data: Secret | None = Field(default=None, description="The key itself; or `filename`.")

    @model_validator(mode="after")
    def _given_once(self) -> GCPServiceAccountCreds:
        one_of(self, "filename", "data")
        return self


_AUDIENCE = shaped(
    r"//iam\.googleapis\.com/projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+",
    "a provider of a workload identity pool",
    "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/dstack/providers/aws",
)
_ACCOUNT = shaped(
    r"[a-z0-9][-a-z0-9]*@[-a-z0-9.]+\.gserviceaccount\.com",
    "a service account",
    "dstack@my-project.iam.gserviceaccount.com",
)
Account = Annotated[str, AfterValidator(_ACCOUNT)]


class GCPWorkloadIdentityCreds(Confidential):
    """No key: a control plane in AWS proves who it is with its own role there."""

    type: Literal["workload_identity"] = Field(
        description="`workload_identity`, which only global admins may use: the role is the control plane's."
    )
    audience: Annotated[str, AfterValidator(_AUDIENCE)] = Field(description="The pool's provider for AWS.")
    service_account: Account = Field(description="The service account that the role may act as.")


GCPCreds = Annotated[
    Annotated[GCPServiceAccountCreds, Tag(TAG + "GCPServiceAccountCreds")]
    | Annotated[DefaultCreds, Tag(TAG + "DefaultCreds")]
    | Annotated[GCPWorkloadIdentityCreds, Tag(TAG + "GCPWorkloadIdentityCreds")],
    by_type(GCPServiceAccountCreds, DefaultCreds, GCPWorkloadIdentityCreds),
]


_FAMILY = shaped(
    r"projects/[a-z0-9.:-]+/global/images/family/[a-z][-a-z0-9]*",
    "a family of images",
    "projects/my-project/global/images/family/a3-mega",
)
_CARDS: Mapping[str, int] = {"a3-highgpu-8g": 4, "a3-megagpu-8g": 8}  # which their software needs


class GCPGpudirect(Spec):
    """What GPUDirect of a machine type needs."""

    image: Annotated[str, AfterValidator(_FAMILY)] = Field(
        description="The family of the machines' image: with Docker, the driver and the modules that GPUDirect needs."
    )
    plugin: Text | None = Field(default=None, description="The image that installs the plugin; Google's unless set.")
    receiver: Text | None = Field(default=None, description="The image of the receiver; Google's unless set.")
    interfaces: Texts | None = Field(
        default=None, description="The names of the network cards in the machines, the first one's first."
    )
    driver_libraries: Text | None = Field(
        default=None, description="The folder with the driver's libraries in the machines."
    )


class GCPBackendConfig(RegionalBackend):
    """Google Cloud."""

    type: Literal["gcp"] = Field(description="`gcp`.")
    project_id: Text = Field(description="The project's id.")
    creds: GCPCreds = Field(description=CREDS)
    vpc_name: Text | None = Field(default=None, description="The VPC's name; the default one unless set.")
    subnetworks: dict[str, Text] | None = Field(default=None, description="Subnetworks by region, in `vpc_name`.")
    extra_vpcs: Texts | None = Field(default=None, description="More VPCs for clusters with several interfaces.")
    roce_vpcs: Texts | None = Field(default=None, description="The VPC for RoCE; at most one.", max_length=1)
    gpudirect: dict[Literal["a3-highgpu-8g", "a3-megagpu-8g"], GCPGpudirect] | None = Field(
        default=None, description="GPUDirect (TCPX, TCPXO) by machine type; none unless set."
    )
    vpc_project_id: Text | None = Field(default=None, description="The project that shares its VPC.")
    public_ips: bool = Field(default=True, description=PUBLIC_IPS)
    nat_check: bool = Field(default=True, description="Check that machines without a public address have a NAT.")
    vm_service_account: Text | None = Field(default=None, description="The machines' service account; none unless set.")
    tpu: bool = Field(default=False, description="Offer TPUs.")
    tags: Tags | None = Field(default=None, description=TAGS)
    preview_features: tuple[Literal["g4"], ...] | None = Field(
        default=None, description="No longer has an effect; `g4` is the only value."
    )

    @model_validator(mode="after")
    def _subnetworks(self) -> GCPBackendConfig:
        if self.subnetworks and self.vpc_name is None:
            raise fault("missing", "`subnetworks` belong to a VPC", "add `vpc_name`", at="subnetworks")
        return self

    @model_validator(mode="after")
    def _gpudirect(self) -> GCPBackendConfig:
        for name, chosen in (self.gpudirect or {}).items():
            cards, there = _CARDS[name], len(self.extra_vpcs or ())
            if there < cards:
                text = f"GPUDirect of {name} needs {cards} `extra_vpcs`, and there are {there}"
                raise fault("missing", text, "name a VPC for each card", at="gpudirect")
            if chosen.interfaces is not None and len(chosen.interfaces) != cards + 1:
                text = f"{name} has {cards + 1} network cards with GPUDirect, and {len(chosen.interfaces)} are named"
                raise fault("invalid-value", text, "name the first one's first", at="gpudirect")
        return self

    @model_validator(mode="after")
    def _labels(self) -> GCPBackendConfig:
        for key, value in (self.tags or {}).items():
            if not is_label(key, value):
                text = f"`{key}: {value}` can't be a label of Google's"
                raise fault("invalid-value", text, LABELS, at="tags")
        return self

    def gpudirect_of(self, type_name: str) -> GCPGpudirect | None:
        return next((each for name, each in (self.gpudirect or {}).items() if name == type_name), None)

    def servers_own(self) -> str:
        """The field that makes the control plane use its own files or credentials; empty if none does."""
        if isinstance(self.creds, GCPWorkloadIdentityCreds):
            return "creds.type"
        return "creds.filename" if isinstance(self.creds, GCPServiceAccountCreds) and self.creds.filename else ""
