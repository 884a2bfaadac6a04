"""The part of `server/config.yml` for all clouds that need only a key. Their rows in the registry name this model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from chalicelib.backends.configs import CREDS, RegionalBackend
from chalicelib.backends.registry import keyed
from chalicelib.domain.specs.credentials import ApiKeyCreds

if TYPE_CHECKING:
    KeyedName = str
else:
    KeyedName = Literal[keyed()]


class KeyBackendConfig(RegionalBackend):
    """Clouds that need only a key: CloudRift, Daytona, JarvisLabs, Lium, Vultr."""

    type: KeyedName = Field(description="Which.")
    creds: ApiKeyCreds = Field(description=CREDS)
