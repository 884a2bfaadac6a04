"""The part of `server/config.yml` for Crusoe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import AccessKeyCreds, Text


class CrusoeBackendConfig(RegionalBackend):
    """Crusoe Cloud."""

    type: Literal["crusoe"] = Field(description="`crusoe`.")
    project_id: Text = Field(description="The project's id.")
    creds: AccessKeyCreds = Field(description=CREDS)
