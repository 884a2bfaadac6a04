"""What users write for Vast.ai alone: how to choose among its offers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.profiles import ProviderOptions
from chalicelib.domain.specs.reading import Integer, Number


class VastAIProfileOptions(ProviderOptions):
    """How to choose among Vast.ai's offers."""

    type: Literal["vastai"] = Field(default="vastai", description="The backend these are for.")
    offer_order: Literal["score", "price"] | None = Field(default=None, description="`score` unless set.")
    min_reliability: Number | None = Field(default=None, description="0 to 1; 0.9 unless set.", ge=0, le=1)
    min_score: Integer | None = Field(default=None, description="The lowest score of a host.", ge=0, le=2**31)
