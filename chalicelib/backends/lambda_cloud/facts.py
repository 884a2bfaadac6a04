"""What Lambda can do.

It has no token for a repeated creation: an instance's tags say whose it is, and a repeated call finds the first call's
instance by them. Keys and values of tags are limited, so not every tag that users can write is accepted.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

LISTS_LAST = 8 * SECOND  # in which the list of instances isn't read again: longer than the pause after an early call
PROVISIONING = 40 * MINUTE  # machines with eight GPUs may boot for half an hour

FACTS = BackendFacts(
    name="lambda",
    title="Lambda",
    idempotent_create=False,
    visibility_lag=15 * SECOND + LISTS_LAST,
    create_timeout=3 * MINUTE,  # half of it: types, keys, a new key, instances, the launch
    provisioning_timeout=PROVISIONING,
    describes=1000,
    spot=False,
)
