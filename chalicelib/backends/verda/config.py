"""The part of `server/config.yml` for Verda."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import Confidential, Secret


class VerdaCreds(Confidential):
    """A client's id and secret."""

    type: Literal["api_key"] = Field(description="`api_key`.")
    client_id: Secret = Field(description="The client's id.")
    client_secret: Secret = Field(description="Its secret.")


class VerdaBackendConfig(RegionalBackend):
    """Verda; `datacrunch` is its older name."""

    type: Literal["verda", "datacrunch"] = Field(description="Which name is used.")
    creds: VerdaCreds = Field(description=CREDS)
