"""The part of `server/config.yml` for CUDO Compute."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.domain.specs.credentials import ApiKeyCreds, Text


class CudoBackendConfig(RegionalBackend):
    """CUDO Compute."""

    type: Literal["cudo"] = Field(description="`cudo`.")
    project_id: Text = Field(description="The project's id.")
    creds: ApiKeyCreds = Field(description=CREDS)
