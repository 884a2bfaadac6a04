"""What Runpod can do.

It has no token for a repeated creation and no tags: a pod's name says whose it is, and a repeated call finds the first
call's pod by it. A spot pod that Runpod takes back has stopped by then; nothing announces it but a signal to the
container, a few seconds before.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

LISTS_LAST = 3 * SECOND  # in which its lists aren't read again for another instance that ends
MOST_NODES = 8  # of a cluster; larger ones are sold by people
PROVISIONING = 20 * MINUTE  # images are large

FACTS = BackendFacts(
    name="runpod",
    title="Runpod",
    idempotent_create=False,
    visibility_lag=10 * SECOND + LISTS_LAST,
    create_timeout=3 * MINUTE,  # twice the longest step: a cluster takes three lists and its creation
    provisioning_timeout=PROVISIONING,
    offers_last=MINUTE,
    multinode=True,
    batch=MOST_NODES,
    describes=1000,
    spot_notice=False,
    tags=False,
    machines=False,
    containers=True,
    grants=frozenset({"volumes", "multinode"}),
    multi_attach=True,
    largest_volume=4096,
)
