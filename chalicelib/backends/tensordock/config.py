"""The part of `server/config.yml` for TensorDock."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import Confidential, Secret


class TensorDockCreds(Confidential):
    """An authorization of the API."""

    type: Literal["api_key"] = Field(description="`api_key`.")
    api_key: Secret = Field(description="The id of the authorization. Calls need only its token.")
    api_token: Secret = Field(description="Its token.")


class TensorDockBackendConfig(RegionalBackend):
    """TensorDock."""

    type: Literal["tensordock"] = Field(description="`tensordock`.")
    creds: TensorDockCreds = Field(description=CREDS)
