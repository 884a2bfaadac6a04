"""What a market is asked for: a provider's offers can't be listed, or are others a minute later, so each request names
what is needed. Names are lower case; None means any."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from pydantic import Field

from chalicelib.domain.noun import Value
from chalicelib.domain.specs.resources import ResourcesSpec


class OfferRequest(Value):
    resources: ResourcesSpec  # of a whole machine
    spot: bool | None = False  # None: either
    max_price: float | None = None
    regions: tuple[str, ...] | None = None
    zones: tuple[str, ...] | None = None
    instance_types: tuple[str, ...] | None = None
    nodes: int = 1  # how many of an offer are needed at once, which must reach each other
    options: dict[str, Any] = Field(default_factory=dict)  # what `backend_options` say to this market

    @property
    def key(self) -> str:
        """Two equal requests have one."""
        return sha256(self.model_dump_json().encode()).hexdigest()[:32]
