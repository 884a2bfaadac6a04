"""What EC2 can do.

There is no `batch`: one call can launch several machines, but with the same user data for all of them, and ours
contains the machine's own id and token. So each machine gets its own call, with its own tags and client token.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

FACTS = BackendFacts(
    name="aws",
    title="Amazon Web Services",
    visibility_lag=60 * SECOND,
    describes=100,  # a filter has up to 200 values
    create_timeout=3 * MINUTE,  # a launch is tried in each zone of a region
    provisioning_timeout=15 * MINUTE,
    multinode=True,
    reservations=True,
    notices="ec2",
    unique_volumes=True,
    multi_attach=True,  # io1 and io2 volumes that were created for it
    largest_volume=65_536,  # of type gp3
    volume_zones=True,
    gateways=True,
)
