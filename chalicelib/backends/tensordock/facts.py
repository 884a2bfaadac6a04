"""What TensorDock can do, by its API v2.

It has no token for a repeated creation and no tags: the name of an instance says whose it is.
"""

from chalicelib.backends.kit.dated_names import STEP
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

LISTS_LAST = 3 * SECOND  # in which the list of instances isn't read again
LAG = 30 * SECOND + LISTS_LAST  # how long what was created may be missing from it
PROVISIONING = 30 * MINUTE  # a host may take twenty minutes to build a machine

FACTS = BackendFacts(
    name="tensordock",
    title="TensorDock",
    idempotent_create=False,
    visibility_lag=LAG + STEP,  # names say when, to so many seconds
    create_timeout=3 * MINUTE,
    provisioning_timeout=PROVISIONING,
    describes=1000,
    spot=False,
    tags=False,
)
