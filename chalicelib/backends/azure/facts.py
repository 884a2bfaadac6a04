"""What Azure can do.

A machine's name is its token: creating it again finds the first. What Azure announces before it takes a spot machine
back is seen on the machine alone, by its agent, and not in a description.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

LISTS_LAST = 3 * SECOND  # in which they aren't read again for another machine that ends

FACTS = BackendFacts(
    name="azure",
    title="Microsoft Azure",
    visibility_lag=60 * SECOND + LISTS_LAST,
    create_timeout=3 * MINUTE,  # a creation is tried in each zone of a region, and its first makes the network
    provisioning_timeout=15 * MINUTE,
    multinode=True,
    reservations=True,
    describes=1000,  # from three lists
    spot_notice=False,
    notices="scheduled-events",
    unique_volumes=True,
    largest_volume=32_767,
    volume_zones=True,
    gateways=True,
)
