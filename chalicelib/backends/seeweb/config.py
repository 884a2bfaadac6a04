"""The part of `server/config.yml` for Seeweb."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import ApiTokenCreds


class SeewebBackendConfig(RegionalBackend):
    """Seeweb."""

    type: Literal["seeweb"] = Field(description="`seeweb`.")
    creds: ApiTokenCreds = Field(description=CREDS)
