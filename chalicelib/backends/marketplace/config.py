"""The part of `server/config.yml` for the hosted marketplace."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.credentials import Texts
from chalicelib.domain.specs.reading import Spec


class SkyBackendConfig(Spec):
    """The hosted marketplace."""

    type: Literal["dstack"] = Field(description="`dstack`.")
    base_backends: Texts | None = Field(default=None, description="Its backends to use; all unless set.")
