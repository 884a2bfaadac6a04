"""What every backend must do, whoever its provider is. A backend's test is this suite, told how to reach a provider.

The provider is told how to behave (`provider.Provider`) and time is given to it, so that everything that goes wrong in
a cloud goes wrong here, in seconds. A case that not every provider can pass needs a capability of the facts (`needs`),
and is asked of those whose facts grant it.
"""

from __future__ import annotations

from tests.backends.conformance.bundling import Bundling
from tests.backends.conformance.containers import ContainerConformance
from tests.backends.conformance.creation import Creation
from tests.backends.conformance.describing import Describing
from tests.backends.conformance.ending import Ending
from tests.backends.conformance.failing import Failing
from tests.backends.conformance.gateways import GatewayConformance
from tests.backends.conformance.groups import PlacementGroupConformance
from tests.backends.conformance.listing import Listing
from tests.backends.conformance.offering import Offering
from tests.backends.conformance.requests import group_request_for, inside, request_for, volume_request
from tests.backends.conformance.reserving import Reserving
from tests.backends.conformance.secrecy import Secrecy
from tests.backends.conformance.several import Several
from tests.backends.conformance.volumes import VolumeConformance
from tests.backends.conformance.watching import Watching

__all__ = ["BackendConformance", "group_request_for", "inside", "request_for", "volume_request"]


class BackendConformance(
    Offering,
    Creation,
    ContainerConformance,
    Several,
    Bundling,
    Reserving,
    PlacementGroupConformance,
    GatewayConformance,
    Describing,
    Watching,
    Listing,
    Ending,
    Failing,
    Secrecy,
    VolumeConformance,
):
    """Fixtures to give: those of `suite.Suite`."""
