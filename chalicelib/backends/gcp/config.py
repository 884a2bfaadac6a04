"""The part of `server/config.yml` for a Google Cloud project."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from chalicelib.backends.configs import CREDS, PUBLIC_IPS, TAGS, RegionalBackend
from chalicelib.domain.specs.credentials import Confidential, DefaultCreds, Secret, Text, Texts, by_type, one_of
from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.reading import TAG, fault


class GCPServiceAccountCreds(Confidential):
    """A service account's key, as JSON."""

    type: Literal["service_account"] = Field(description="`service_account`.")
    filename: Text | None = Field(default=None, description="A file with the key; or `data`.")
    data: Secret | None = Field(default=None, description="The key itself; or `filename`.")

    @model_validator(mode="after")
    def _given_once(self) -> GCPServiceAccountCreds:
        one_of(self, "filename", "data")
        return self


GCPCreds = Annotated[
    Annotated[GCPServiceAccountCreds, Tag(TAG + "GCPServiceAccountCreds")]
    | Annotated[DefaultCreds, Tag(TAG + "DefaultCreds")],
    by_type(GCPServiceAccountCreds, DefaultCreds),
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
    vm_service_account: Text | None = Field(default=None, description="The machines' service account.")
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
