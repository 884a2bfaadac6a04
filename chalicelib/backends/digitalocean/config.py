"""The part of `server/config.yml` for DigitalOcean and AMD Developer Cloud."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import ApiKeyCreds, Text


class DigitalOceanBackendConfig(RegionalBackend):
    """DigitalOcean, and AMD Developer Cloud, which is operated by it."""

    type: Literal["digitalocean", "amddevcloud"] = Field(description="Which.")
    project_name: Text | None = Field(default=None, description="The project; the default one unless set.")
    creds: ApiKeyCreds = Field(description=CREDS)
