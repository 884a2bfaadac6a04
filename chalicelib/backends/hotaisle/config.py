"""The part of `server/config.yml` for Hot Aisle."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import ApiKeyCreds, Text


class HotAisleBackendConfig(RegionalBackend):
    """Hot Aisle."""

    type: Literal["hotaisle"] = Field(description="`hotaisle`.")
    team_handle: Text = Field(description="The team's handle.")
    bare_metal: bool = Field(default=False, description="Offer whole machines without virtualisation.")
    creds: ApiKeyCreds = Field(description=CREDS)
