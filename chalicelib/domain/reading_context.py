"""What files and requests are read with: pydantic's validation context. What is stored is read without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chalicelib.domain.noun import Value


class ProviderModels(Protocol):
    """What is known of the providers."""

    def names(self) -> Sequence[str]:
        """Every backend."""

    def kinds(self, part: str) -> Sequence[str]:
        """What chooses among the models of a part of a spec."""

    def model(self, part: str, kind: str) -> type[Value]:
        """One of those models; it is loaded now."""


@dataclass(frozen=True)
class Reading:
    providers: ProviderModels
    file: bool = False  # an unknown key is a mistake there, even if it is empty
