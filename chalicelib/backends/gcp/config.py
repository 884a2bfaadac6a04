"""The part of `server/config.yml` for a Google Cloud project."""

from __future__ import annotations

import re
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
from chalicelib.domain.specs.reading import TAG, fault

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


class GCPBackendConfig(RegionalBackend):
    """Google Cloud."""

    type: Literal["gcp"] = Field(description="`gcp`.")
    project_id: Text = Field(description="The project's id.")
    creds: GCPCreds = Field(description=CREDS)
    vpc_name: Text | None = Field(default=None, description="The VPC's name; the default one unless set.")
    subnetworks: dict[str, Text] | None = Field(default=None, description="Subnetworks by region, in `vpc_name`.")
    extra_vpcs: Texts | None = Field(default=None, description="More VPCs for clusters with several interfaces.")
    roce_vpcs: Texts | None = Field(default=None, description="The VPC for RoCE; at most one.", max_length=1)
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
    def _labels(self) -> GCPBackendConfig:
        for key, value in (self.tags or {}).items():
            if not is_label(key, value):
                text = f"`{key}: {value}` can't be a label of Google's"
                raise fault("invalid-value", text, LABELS, at="tags")
        return self

    def servers_own(self) -> str:
        """The field that makes the control plane use its own files or credentials; empty if none does."""
        if isinstance(self.creds, GCPWorkloadIdentityCreds):
            return "creds.type"
        return "creds.filename" if isinstance(self.creds, GCPServiceAccountCreds) and self.creds.filename else ""
