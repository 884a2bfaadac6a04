"""The validation context for files and requests. Stored specs are read without a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chalicelib.domain.noun import Value


class ProviderModels(Protocol):
    """The providers' names and models."""

    def names(self) -> Sequence[str]:
        """The names of all backends."""

    def kinds(self, part: str) -> Sequence[str]:
        """The values that choose among the models of a part of a spec."""

    def model(self, part: str, kind: str) -> type[Value]:
        """The model for one of these values; it is imported on first use."""


@dataclass(frozen=True)
class Reading:
    providers: ProviderModels
    file: bool = False  # from a file, where an unknown key is an error even if its value is null
