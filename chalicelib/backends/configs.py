"""What the configuration models of several providers share, and the model of those that need only a key.

A provider's own model is in its package, `<provider>/config.py`; the registry says which model reads which `type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from chalicelib.backends.registry import keyed
from chalicelib.domain.specs.credentials import ApiKeyCreds, Words
from chalicelib.domain.specs.reading import Spec, fault

CREDS = "How to log in."
PUBLIC_IPS = "Whether machines get public addresses."
TAGS = "Tags for the resources created there."
EXPERIMENTAL = "Instance types to offer that aren't offered by default."


def shaped(pattern: str, what: str, example: str) -> Callable[[str], str]:
    """A validator of text that must look like `pattern`."""
    known = re.compile(pattern)

    def check(text: str) -> str:
        if not known.fullmatch(text):
            raise fault("invalid-value", f"`{text[:80]}` isn't {what}", f"for example `{example}`")
        return text

    return check


if TYPE_CHECKING:
    KeyedName = str
else:
    KeyedName = Literal[keyed()]


class RegionalBackend(Spec):
    """A backend with regions."""

    regions: Words | None = Field(default=None, description="Regions to use; all unless set.")


class KeyBackendConfig(RegionalBackend):
    """Clouds that need only a key: CloudRift, Daytona, JarvisLabs, Lambda, Lium, Vultr."""

    type: KeyedName = Field(description="Which.")
    creds: ApiKeyCreds = Field(description=CREDS)
