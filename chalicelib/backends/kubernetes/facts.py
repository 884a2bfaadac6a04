"""What a Kubernetes cluster can do.

It shows what it has created at once, and schedules it later: a pod that nothing has room for is created like any other,
and then described as `Gone` for lack of capacity.
"""

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND

FACTS = BackendFacts(
    name="kubernetes",
    title="Kubernetes",
    visibility_lag=0,
    create_timeout=4 * MINUTE,  # twice the longest step: five calls of up to 20 s
    provisioning_timeout=20 * MINUTE,  # images are large
    offers_last=15 * SECOND,
    describes=500,
    spot=False,
    machines=False,
    containers=True,
    grants=frozenset(
        {"privileged", "user", "shm_size", "volumes", "multinode", "nodes_login", "nodes_volumes", "network"}
    ),
    multinode=True,
    multi_attach=True,  # claims with a mode for several nodes
)
