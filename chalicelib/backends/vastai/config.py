"""The part of `server/config.yml` for Vast.ai."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import ApiKeyCreds, Texts


class VastAIBackendConfig(RegionalBackend):
    """Vast.ai."""

    type: Literal["vastai"] = Field(description="`vastai`.")
    regions: Texts | None = Field(
        default=None, description="Regions (`us-california`) and whole countries (`us`) to use; all unless set."
    )
    community_cloud: bool = Field(default=True, description="Offer machines of the community cloud too.")
    creds: ApiKeyCreds = Field(description=CREDS)
