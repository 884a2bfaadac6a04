"""Checks the login, the subscription, the rights in the resource group and each region's network. All problems of one
kind are reported at once.

The resource group is made if none is given, because rights are asked of what exists.
"""

from __future__ import annotations

from functools import partial

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.network import AzureNetworks
from chalicelib.backends.azure.permissions import IDENTITY, JOIN, OWN_GROUP, lacking, needed
from chalicelib.backends.azure.places import Body, region_named, regions_of
from chalicelib.backends.kit.checking import must_exist, problems, report
from chalicelib.errors import MissingPermission, Unfit

PROVIDERS = ("Microsoft.Compute", "Microsoft.Network")


def check(client: AzureClient, networks: AzureNetworks) -> None:
    """Raises InvalidCredentials, MissingPermission with every action that is denied, or Unfit."""
    _subscription(client)
    _regions(client)
    _providers(client)
    networks.forget()
    _group(client, networks)
    _rights(client)
    if client.config.vm_managed_identity:
        _identity(client, client.config.vm_managed_identity)
    _networks(client, networks)


def _subscription(client: AzureClient) -> None:
    found = {str(each["subscriptionId"]): each for each in client.listed("/subscriptions")}
    subscription = found.get(client.config.subscription_id)
    if subscription is None:
        seen = f"it sees {', '.join(sorted(found))}" if found else "it sees none"
        raise MissingPermission(
            f"The login doesn't see the subscription {client.config.subscription_id}: {seen}.",
            hint="Give it a role there, or correct `subscription_id`.",
        )
    if subscription.get("state") not in ("Enabled", "Warned"):
        raise Unfit(f"The subscription {client.config.subscription_id} is {subscription.get('state')}.")
    if client.config.tenant_id not in {str(each["tenantId"]) for each in client.listed("/tenants")}:
        raise Unfit(f"The login isn't of the tenant {client.config.tenant_id}.", hint="Correct `tenant_id`.")


def _regions(client: AzureClient) -> None:
    known = {str(each["name"]) for each in client.listed(f"/subscriptions/{client.config.subscription_id}/locations")}
    if missing := sorted(set(regions_of(client.config)) - set(map(region_named, known))):
        raise Unfit(f"The subscription has no region {', '.join(missing)}.", hint="Take it out of `regions`.")


def _providers(client: AzureClient) -> None:
    base = f"/subscriptions/{client.config.subscription_id}/providers"
    states = {name: client.call("GET", f"{base}/{name}").get("registrationState") for name in PROVIDERS}
    if missing := sorted(name for name, state in states.items() if state != "Registered"):
        raise MissingPermission(
            f"The subscription hasn't registered {' and '.join(missing)}.",
            hint=" ".join(f"Run `az provider register --namespace {name}`." for name in missing),
        )


def _group(client: AzureClient, networks: AzureNetworks) -> None:
    if client.config.resource_group is None:
        try:
            networks.ensure_resource_group()
        except MissingPermission as error:
            raise MissingPermission(
                f"The login may not create a resource group ({OWN_GROUP}): {error.message}",
                hint="Allow that, or create a group and name it in `resource_group`.",
            ) from None
        return
    must_exist(
        lambda: client.call("GET", _group_path(client, client.ids.group)),
        f"The subscription has no resource group {client.config.resource_group}.",
        "Create it, or remove `resource_group`, and one is created.",
    )


def _rights(client: AzureClient) -> None:
    if denied := lacking(needed(client.config), _granted(client, client.ids.group)):
        raise MissingPermission(
            f"The login may not do these in the resource group {client.ids.group}: {', '.join(denied)}.",
            hint="Give it a role that allows them there.",
        )


def _granted(client: AzureClient, group: str) -> list[Body]:
    """What the login's roles allow in this resource group."""
    return list(client.listed(f"{_group_path(client, group)}/providers/Microsoft.Authorization/permissions"))


def _group_path(client: AzureClient, group: str) -> str:
    return f"/subscriptions/{client.ids.subscription}/resourcegroups/{group}"


def _identity(client: AzureClient, given: str) -> None:
    group, name = given.split("/")
    must_exist(
        lambda: client.call("GET", client.ids.of("identity", name, group)),
        f"The subscription has no managed identity {given}.",
        "Correct `vm_managed_identity`: `group/identity`.",
    )
    if lacking([IDENTITY], _granted(client, group)):
        raise MissingPermission(f"The login may not give machines the identity {given}: it lacks {IDENTITY}.")


def _networks(client: AzureClient, networks: AzureNetworks) -> None:
    """Those that are given. Our own are made with the first machine."""
    if not (client.config.vpc_ids or client.config.subnet_ids):
        return
    report(problems(*(partial(networks.subnet, region) for region in regions_of(client.config))))
    given = {**(client.config.vpc_ids or {}), **(client.config.subnet_ids or {})}
    groups = sorted({name.split("/")[0] for name in given.values()}, key=str.lower)
    if closed := [group for group in groups if lacking([JOIN], _granted(client, group))]:
        raise MissingPermission(
            f"The login may not put machines into the networks of the resource group {', '.join(closed)}: "
            f"it lacks {JOIN}.",
            hint="Give it a role that allows this there.",
        )
