"""The part of `server/config.yml` for Runpod."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import ApiKeyCreds


class RunpodBackendConfig(RegionalBackend):
    """Runpod."""

    type: Literal["runpod"] = Field(description="`runpod`.")
    community_cloud: bool = Field(
        default=False, description="Offer pods of the community cloud too, in the region `COMMUNITY`."
    )
    creds: ApiKeyCreds = Field(description=CREDS)
