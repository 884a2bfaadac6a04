"""The part of `server/config.yml` for an Azure subscription."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from chalicelib.backends.configs import CREDS, PUBLIC_IPS, TAGS, RegionalBackend, shaped
from chalicelib.domain.specs.credentials import Confidential, DefaultCreds, Secret, Text, by_type
from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.reading import TAG, faults


class AzureClientCreds(Confidential):
    """An application registered in the tenant."""

    type: Literal["client"] = Field(description="`client`.")
    client_id: Secret = Field(description="The application's id.")
    client_secret: Secret = Field(description="Its secret.")
    tenant_id: Secret | None = Field(default=None, description="Its tenant, if it isn't the backend's.")


AzureCreds = Annotated[
    Annotated[AzureClientCreds, Tag(TAG + "AzureClientCreds")] | Annotated[DefaultCreds, Tag(TAG + "DefaultCreds")],
    by_type(AzureClientCreds, DefaultCreds),
]


_NETWORK = shaped(r"[^/]+/[^/]+", "a resource group and a network", "my-group/my-network")
_SUBNET = shaped(r"[^/]+/[^/]+/[^/]+", "a resource group, a network and a subnet", "my-group/my-network/my-subnet")
_IDENTITY = shaped(r"[^/]+/[^/]+", "a resource group and a managed identity", "my-group/my-identity")


class AzureBackendConfig(RegionalBackend):
    """Microsoft Azure."""

    type: Literal["azure"] = Field(description="`azure`.")
    tenant_id: Text = Field(description="The tenant's id.")
    subscription_id: Text = Field(description="The subscription's id.")
    creds: AzureCreds = Field(description=CREDS)
    resource_group: Text | None = Field(default=None, description="The resource group; one is created unless set.")
    vpc_ids: dict[str, Annotated[str, AfterValidator(_NETWORK)]] | None = Field(
        default=None, description="The network by location, in the form `group/network`."
    )
    subnet_ids: dict[str, Annotated[str, AfterValidator(_SUBNET)]] | None = Field(
        default=None, description="The subnet by location, in the form `group/network/subnet`."
    )
    public_ips: bool = Field(default=True, description=PUBLIC_IPS + " Without, `vpc_ids` or `subnet_ids` is needed.")
    vm_managed_identity: Annotated[str, AfterValidator(_IDENTITY)] | None = Field(
        default=None, description="The machines' identity, in the form `group/identity`."
    )
    tags: Tags | None = Field(default=None, description=TAGS)

    @model_validator(mode="after")
    def _networks(self) -> AzureBackendConfig:
        networks, subnets = self.vpc_ids or {}, self.subnet_ids or {}
        why, hint = "this location has an entry in `vpc_ids` too", "keep one of the two"
        found = [("exclusive", why, hint, f"subnet_ids.{location}") for location in subnets if location in networks]
        if not self.public_ips and not networks and not subnets:
            hint = "add `vpc_ids` or `subnet_ids`"
            found.append(("missing", "machines without public addresses need a network", hint, "public_ips"))
        if found:
            raise faults(found)
        return self
