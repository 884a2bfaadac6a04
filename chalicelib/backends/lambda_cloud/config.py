"""The part of `server/config.yml` for Lambda."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import ApiKeyCreds


class LambdaBackendConfig(RegionalBackend):
    """Lambda Cloud."""

    type: Literal["lambda"] = Field(description="`lambda`.")
    creds: ApiKeyCreds = Field(description=CREDS)
