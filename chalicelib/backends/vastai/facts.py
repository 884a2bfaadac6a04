"""What Vast.ai can do.

It has no token for a repeated creation and no tags: an instance's label says whose it is, and a repeated call finds the
first call's instance by it. Spot instances are bids; who is outbid is told nothing before.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

LISTS_LAST = 3 * SECOND  # in which its list isn't read again for another instance that ends
LISTS_WITHIN = 30 * SECOND  # from the first page to the last: a second lies between two of them
PROVISIONING = 20 * MINUTE  # images are large

FACTS = BackendFacts(
    name="vastai",
    title="Vast.ai",
    idempotent_create=False,
    visibility_lag=10 * SECOND + LISTS_WITHIN,
    create_timeout=2 * MINUTE,
    provisioning_timeout=PROVISIONING,
    offers_last=MINUTE,
    describes=1000,
    spot_notice=False,
    tags=False,
    machines=False,
    containers=True,
    options=True,
)
