"""The part of `server/config.yml` for Nebius."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from chalicelib.backends.configs import CREDS, TAGS, RegionalBackend
from chalicelib.domain.specs.credentials import Confidential, Secret, Text, Texts, one_of
from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.reading import fault, faults


class NebiusServiceAccountCreds(Confidential):
    """A service account: one file with all of it, or its ids and its private key."""

    type: Literal["service_account"] = Field(description="`service_account`.")
    filename: Text | None = Field(default=None, description="A file with all of it; instead of the rest.")
    service_account_id: Secret | None = Field(default=None, description="The account's id.")
    public_key_id: Secret | None = Field(default=None, description="The id of its public key.")
    private_key_file: Text | None = Field(default=None, description="A file with its private key.")
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


class NebiusBackendConfig(RegionalBackend):
    """Nebius."""

    type: Literal["nebius"] = Field(description="`nebius`.")
    creds: NebiusServiceAccountCreds = Field(description=CREDS)
    projects: Texts | None = Field(default=None, description="Ids of projects to use, one a region.")
    fabrics: Texts | None = Field(default=None, description="InfiniBand fabrics to use; any unless set.")
    tags: Tags | None = Field(default=None, description=TAGS)

    def servers_own(self) -> str:
        """The field that names a file of the control plane's own machine; empty if none does."""
        files = ("filename", "private_key_file")
        return next((f"creds.{each}" for each in files if getattr(self.creds, each) is not None), "")
