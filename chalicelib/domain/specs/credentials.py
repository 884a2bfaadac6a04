"""Credentials of backends, by value or by the path of a file that holds them.

Whatever is secret is marked `Secret`, and the models that hold it are `Confidential`: they never print it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from chalicelib.domain.specs.reading import TAG, Spec, fault, faults

Secret = Annotated[str, Field(min_length=1, json_schema_extra={"writeOnly": True})]
Word = Annotated[str, Field(min_length=1)]
Words = tuple[Word, ...]


class Confidential(Spec):
    """A spec that holds secrets, and shows none of its fields when it is printed."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return ()


def by_type(*models: type[BaseModel]) -> Discriminator:
    """Which of the models is meant, by the `type` that was written."""
    tags = {kind: TAG + model.__name__ for model in models for kind in types_of(model)}

    def arm(value: Any) -> str:
        found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return tags.get(found, TAG) if isinstance(found, str) else TAG

    listed = ", ".join(f"`{kind}`" for kind in sorted(tags))
    return Discriminator(arm, custom_error_type="unknown-type", custom_error_message=f"one of {listed}")


def types_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The values of `type` that a model stands for."""
    return tuple(get_args(model.model_fields["type"].annotation))


def one_of(spec: Spec, *fields: str) -> None:
    """Refuses unless one of the fields is given, and one only."""
    given = [field for field in fields if getattr(spec, field) is not None]
    if len(given) == 1:
        return
    listed = " or ".join(f"`{field}`" for field in fields)
    if not given:
        raise fault("missing", f"{listed} is needed", "give one of them")
    raise fault("exclusive", f"{listed}, not both", "keep one of them", at=given[1])


class DefaultCreds(Confidential):
    """What the provider's own tools would use: environment variables, a file in the home folder, the machine's role."""

    type: Literal["default"] = Field(description="`default`.")


class AccessKeyCreds(Confidential):
    """A pair of keys."""

    type: Literal["access_key"] = Field(description="`access_key`.")
    access_key: Secret = Field(description="The key's id.")
    secret_key: Secret = Field(description="The key itself.")


class ApiKeyCreds(Confidential):
    """One key."""

    type: Literal["api_key"] = Field(description="`api_key`.")
    api_key: Secret = Field(description="The key.")


class ApiTokenCreds(Confidential):
    """One token."""

    type: Literal["api_token"] = Field(description="`api_token`.")
    api_token: Secret = Field(description="The token.")


class AzureClientCreds(Confidential):
    """An application registered in the tenant."""

    type: Literal["client"] = Field(description="`client`.")
    client_id: Secret = Field(description="The application's id.")
    client_secret: Secret = Field(description="Its secret.")
    tenant_id: Secret | None = Field(default=None, description="Its tenant, where it is another than the backend's.")


class GCPServiceAccountCreds(Confidential):
    """A service account's key, as JSON."""

    type: Literal["service_account"] = Field(description="`service_account`.")
    filename: Word | None = Field(default=None, description="A file with the key; or `data`.")
    data: Secret | None = Field(default=None, description="The key itself; or `filename`.")

    @model_validator(mode="after")
    def _given_once(self) -> GCPServiceAccountCreds:
        one_of(self, "filename", "data")
        return self


class NebiusServiceAccountCreds(Confidential):
    """A service account: one file with all of it, or its ids and its private key."""

    type: Literal["service_account"] = Field(description="`service_account`.")
    filename: Word | None = Field(default=None, description="A file with all of it; instead of the rest.")
    service_account_id: Secret | None = Field(default=None, description="The account's id.")
    public_key_id: Secret | None = Field(default=None, description="The id of its public key.")
    private_key_file: Word | None = Field(default=None, description="A file with its private key.")
    private_key_content: Secret | None = Field(default=None, description="Its private key; or `private_key_file`.")

    @model_validator(mode="after")
    def _given_once(self) -> NebiusServiceAccountCreds:
        parts = ("service_account_id", "public_key_id", "private_key_file", "private_key_content")
        given = [part for part in parts if getattr(self, part) is not None]
        if self.filename is None:
            missing = [part for part in parts[:2] if part not in given]
            if missing:
                hint = "give it, or all of the account in one file with `filename`"
                raise faults([("missing", f"`{part}` is needed", hint, "") for part in missing])
            one_of(self, "private_key_file", "private_key_content")
        elif given:
            raise fault("exclusive", f"`filename` holds what `{given[0]}` says", "keep one of them", at=given[0])
        return self


class OCIClientCreds(Confidential):
    """A user's API signing key."""

    type: Literal["client"] = Field(description="`client`.")
    user: Secret = Field(description="The user's OCID.")
    tenancy: Secret = Field(description="The tenancy's OCID.")
    key_file: Word | None = Field(default=None, description="A file with the private key; or `key_content`.")
    key_content: Secret | None = Field(default=None, description="The private key; or `key_file`.")
    pass_phrase: Secret | None = Field(default=None, description="The key's pass phrase, if it has one.")
    fingerprint: Secret = Field(description="The key's fingerprint.")
    region: Word = Field(description="The region to log in to.")

    @model_validator(mode="after")
    def _given_once(self) -> OCIClientCreds:
        one_of(self, "key_file", "key_content")
        return self


class OCIDefaultCreds(Confidential):
    """A profile of the provider's own configuration file."""

    type: Literal["default"] = Field(description="`default`.")
    file: Word = Field(default="~/.oci/config", description="The file.")
    profile: Word = Field(default="DEFAULT", description="The profile in it.")


class VerdaCreds(Confidential):
    """A client's id and secret."""

    type: Literal["api_key"] = Field(description="`api_key`.")
    client_id: Secret = Field(description="The client's id.")
    client_secret: Secret = Field(description="Its secret.")


class TensorDockCreds(Confidential):
    """A key and its token."""

    type: Literal["api_key"] = Field(description="`api_key`.")
    api_key: Secret = Field(description="The key.")
    api_token: Secret = Field(description="The token.")


AWSCreds = Annotated[
    Annotated[AccessKeyCreds, Tag(TAG + "AccessKeyCreds")] | Annotated[DefaultCreds, Tag(TAG + "DefaultCreds")],
    by_type(AccessKeyCreds, DefaultCreds),
]
AzureCreds = Annotated[
    Annotated[AzureClientCreds, Tag(TAG + "AzureClientCreds")] | Annotated[DefaultCreds, Tag(TAG + "DefaultCreds")],
    by_type(AzureClientCreds, DefaultCreds),
]
GCPCreds = Annotated[
    Annotated[GCPServiceAccountCreds, Tag(TAG + "GCPServiceAccountCreds")]
    | Annotated[DefaultCreds, Tag(TAG + "DefaultCreds")],
    by_type(GCPServiceAccountCreds, DefaultCreds),
]
OCICreds = Annotated[
    Annotated[OCIClientCreds, Tag(TAG + "OCIClientCreds")] | Annotated[OCIDefaultCreds, Tag(TAG + "OCIDefaultCreds")],
    by_type(OCIClientCreds, OCIDefaultCreds),
]
