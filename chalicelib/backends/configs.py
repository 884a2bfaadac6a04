"""What the configuration models of several providers share.

A provider's own model is in its package, in `<provider>/config.py`. Clouds that need only a key share the one in
`keyed`. The registry says which model reads which `type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pydantic import Field

from chalicelib.domain.specs.credentials import Texts
from chalicelib.domain.specs.reading import Spec, fault

CREDS = "How to log in."
PUBLIC_IPS = "Whether machines get public addresses."
TAGS = "Tags for the resources created there."
EXPERIMENTAL = "Instance types to offer that aren't offered by default."


def shaped(pattern: str, what: str, example: str) -> Callable[[str], str]:
    """A validator for text that must match `pattern`."""
    known = re.compile(pattern)

    def check(text: str) -> str:
        if not known.fullmatch(text):
            raise fault("invalid-value", f"`{text[:80]}` isn't {what}", f"for example `{example}`")
        return text

    return check


class RegionalBackend(Spec):
    """A backend with regions."""

    regions: Texts | None = Field(default=None, description="Regions to use; all unless set.")
