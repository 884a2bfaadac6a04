"""Planted faults: what a backend could get wrong, as wrappers around its port, so that each fits every backend.

`port` has the wrapper, and the other modules the faults by what they are about; each names the cases of the conformance
suite that must fail with it. `suite.PlantedFaults` plays them on a backend, whose test joins with the fixtures that it
has for the conformance suite.
"""

from __future__ import annotations

from tests.backends.planted import (
    bundles,
    containers,
    creating,
    describing,
    ending,
    gateways,
    groups,
    listing,
    offering,
    raising,
    volumes,
)
from tests.backends.planted.port import FAULTS, Case, PortFault, planted

__all__ = [
    "FAULTS",
    "Case",
    "PortFault",
    "bundles",
    "containers",
    "creating",
    "describing",
    "ending",
    "gateways",
    "groups",
    "listing",
    "offering",
    "planted",
    "raising",
    "volumes",
]
