"""What Nebius can do."""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

FACTS = BackendFacts(
    name="nebius",
    title="Nebius AI Cloud",
    visibility_lag=10 * SECOND,
    create_timeout=8 * MINUTE,  # twice the longest step: a first one has many look-ups and makes security groups
    provisioning_timeout=20 * MINUTE,
    describes=100,
    multinode=True,
    spot_notice=False,  # the machine itself gets a signal a minute before; no call says so
    reservations=True,
    unique_volumes=True,
    read_only_attach=True,
    largest_volume=8192,  # GiB
    gateways=True,
)
