"""The part of `server/config.yml` for an OCI tenancy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from chalicelib.backends.configs import CREDS, EXPERIMENTAL, RegionalBackend
from chalicelib.domain.specs.credentials import Confidential, Secret, Text, Texts, by_type, one_of
from chalicelib.domain.specs.reading import TAG


class OCIClientCreds(Confidential):
    """A user's API signing key."""

    type: Literal["client"] = Field(description="`client`.")
    user: Secret = Field(description="The user's OCID.")
    tenancy: Secret = Field(description="The tenancy's OCID.")
    key_file: Text | None = Field(default=None, description="A file with the private key; or `key_content`.")
    key_content: Secret | None = Field(default=None, description="The private key; or `key_file`.")
    pass_phrase: Secret | None = Field(default=None, description="The key's pass phrase, if it has one.")
    fingerprint: Secret = Field(description="The key's fingerprint.")
    region: Text = Field(description="The region to log in to.")

    @model_validator(mode="after")
    def _given_once(self) -> OCIClientCreds:
        one_of(self, "key_file", "key_content")
        return self


class OCIDefaultCreds(Confidential):
    """A profile of the provider's own configuration file."""

    type: Literal["default"] = Field(description="`default`.")
    file: Text = Field(default="~/.oci/config", description="The file.")
    profile: Text = Field(default="DEFAULT", description="The profile in it.")


OCICreds = Annotated[
    Annotated[OCIClientCreds, Tag(TAG + "OCIClientCreds")] | Annotated[OCIDefaultCreds, Tag(TAG + "OCIDefaultCreds")],
    by_type(OCIClientCreds, OCIDefaultCreds),
]


class OCIBackendConfig(RegionalBackend):
    """Oracle Cloud Infrastructure."""

    type: Literal["oci"] = Field(description="`oci`.")
    creds: OCICreds = Field(description=CREDS)
    compartment_id: Text | None = Field(default=None, description="The compartment; one is created unless set.")
    experimental_instance_types: Texts | None = Field(default=None, description=EXPERIMENTAL)
