"""The permissions that this backend's calls need. `check` asks Google which of them the credentials have; the guide
has a role with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.backends.kit.tables import table

_OF: Mapping[str, Sequence[str]] = table("gcp/permissions.toml")
ADDRESSES, NAT = "compute.subnetworks.useExternalIp", "compute.routers.list"
ACCOUNT = "compute.instances.setServiceAccount"


def needed(*, shared: bool, public: bool, nat: bool, account: bool) -> tuple[Sequence[str], Sequence[str]]:
    """Those in the machines' project, and those in the VPC's."""
    own = [*_OF["machines"], *([ACCOUNT] if account else [])]
    network = [*_OF["network"], *([ADDRESSES] if public else []), *([NAT] if nat else [])]
    return (own, network) if shared else ([*own, *_OF["rules"], *network], [])
