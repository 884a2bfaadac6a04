"""What Google's cloud can do.

There is no `batch`: one call can create several machines (`bulkInsert`), but all of them with the same labels, by which
what is ours is found, and with the same metadata. So each machine gets its own call.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

FACTS = BackendFacts(
    name="gcp",
    title="Google Cloud",
    visibility_lag=10 * SECOND,
    describes=100,  # all machines of a zone are in one list
    create_timeout=4 * MINUTE,  # a launch is tried in each zone of a region
    provisioning_timeout=15 * MINUTE,
    multinode=True,
    reservations=True,
    notices="gce",
    multi_attach=True,  # disks whose access mode says so
    read_only_attach=True,
    largest_volume=65_536,
    volume_zones=True,
    gateways=True,
)
