"""Credentials of backends, by value or by the path of a file with them.

Secrets are marked `Secret`. The models that have them are `Confidential`, so they are never printed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol, get_args, runtime_checkable

from pydantic import BaseModel, BeforeValidator, Discriminator, Field

from chalicelib.domain.specs import secrecy
from chalicelib.domain.specs.reading import TAG, Spec, fault

Confidential = secrecy.Confidential
Secret = secrecy.Secret
Text = Annotated[str, Field(min_length=1)]
Texts = tuple[Text, ...]
# Some clients send an empty name beside the text of the file.
FileName = Annotated[Text | None, BeforeValidator(lambda value: None if value == "" else value)]


def by_type(*models: type[BaseModel]) -> Discriminator:
    """A discriminator that chooses among the models by `type`."""
    tags = {kind: TAG + model.__name__ for model in models for kind in types_of(model)}

    def arm(value: Any) -> str:
        found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return tags.get(found, TAG) if isinstance(found, str) else TAG

    listed = ", ".join(f"`{kind}`" for kind in sorted(tags))
    return Discriminator(arm, custom_error_type="unknown-type", custom_error_message=f"one of {listed}")


def types_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The values of `type` that select a model."""
    return tuple(get_args(model.model_fields["type"].annotation))


def one_of(spec: Spec, *fields: str) -> None:
    """Raises a fault unless exactly one of the fields is given."""
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


@runtime_checkable
class UsesServersOwn(Protocol):
    """A configuration that may name files, credentials or addresses of the control plane."""

    def servers_own(self) -> str:
        """The field that does; empty if none does."""


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
