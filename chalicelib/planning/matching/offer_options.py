"""`backend_options`: a provider's own way to choose among its offers. Only the provider reads what they say."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.specs.fleets import FleetConfiguration
from chalicelib.domain.specs.workloads import RunConfiguration

OfferOptions = tuple[tuple[str, str, Any], ...]  # backend, field, value; sorted


def options_of(config: RunConfiguration | FleetConfiguration) -> OfferOptions:
    """The fields that are set."""
    return _sorted(
        {
            (each.type, name): value
            for each in config.backend_options or ()
            for name, value in each.model_dump(exclude_none=True, exclude={"type"}).items()
        }
    )


def met_options(run: OfferOptions, fleet: OfferOptions) -> OfferOptions:
    """What both set is as the run sets it."""
    return _sorted({(backend, name): value for backend, name, value in (*fleet, *run)}) if fleet else run


def for_backend(options: OfferOptions, backend: str) -> dict[str, Any]:
    return {name: value for owner, name, value in options if owner == backend}


def _sorted(values: dict[tuple[str, str], Any]) -> OfferOptions:
    return tuple((backend, name, values[backend, name]) for backend, name in sorted(values))
