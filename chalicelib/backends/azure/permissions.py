"""What the login must be allowed to do, as Azure's roles name it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from chalicelib.backends.azure.config import AzureBackendConfig
from chalicelib.backends.azure.places import Body
from chalicelib.backends.kit.tables import table

JOIN = "Microsoft.Network/virtualNetworks/subnets/join/action"
IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
OWN_GROUP = "Microsoft.Resources/subscriptions/resourceGroups/write"


def _listed(part: str) -> tuple[str, ...]:
    actions: Mapping[str, Sequence[str]] = table("azure/permissions.toml")[part]
    return tuple(f"{of}/{each}" for of, some in actions.items() for each in some)


ACTIONS, OWN_NETWORK = _listed("machines"), (*_listed("network"), JOIN)


def needed(config: AzureBackendConfig) -> Sequence[str]:
    """Within the resource group. What is given elsewhere, networks and an identity, is another group's matter."""
    return ACTIONS if config.vpc_ids or config.subnet_ids else (*ACTIONS, *OWN_NETWORK)


def lacking(actions: Iterable[str], granted: Sequence[Body]) -> list[str]:
    """Those that none of the roles allows."""
    return [action for action in actions if not any(_allows(role, action) for role in granted)]


def _allows(role: Body, action: str) -> bool:
    given, taken = role.get("actions") or (), role.get("notActions") or ()
    return any(_fits(each, action) for each in given) and not any(_fits(each, action) for each in taken)


def _fits(pattern: str, action: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, str(pattern).split("*"))), action, re.IGNORECASE) is not None
