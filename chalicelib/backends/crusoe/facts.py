"""What Crusoe Cloud can do.

It has no token for a repeated creation and no tags: a resource's name says whose it is, and a repeated call finds by it
what the first call made. There is no `batch`: one call can create several machines, but with one start script for all
of them, and ours contains the machine's own id and token. Spot machines are in its price list, and no call buys one.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

FACTS = BackendFacts(
    name="crusoe",
    title="Crusoe Cloud",
    idempotent_create=False,
    visibility_lag=10 * SECOND,
    create_timeout=3 * MINUTE,  # twice the longest step: four look-ups and a creation
    provisioning_timeout=15 * MINUTE,
    multinode=True,
    describes=100,
    spot=False,
    spot_notice=False,
    tags=False,
    unique_volumes=True,
    offers_disks=("--", "--"),  # names have lower-case letters, digits and hyphens
    read_only_attach=True,
    largest_volume=10_240,
)
