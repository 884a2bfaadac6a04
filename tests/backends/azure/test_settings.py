"""What people set for a backend has its effect, or is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.azure.backend import AzureBackend
from chalicelib.backends.azure.places import REGIONS, regions_of
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.errors import BackendError, MissingPermission, Transient, Unfit
from tests.backends.azure.account import SMALL, Account
from tests.backends.azure.fake.api import SUBSCRIPTION
from tests.backends.azure.provider import config
from tests.backends.conformance.requests import request_for

NET = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/office"
ONE = {"regions": ("westeurope",)}
VPC = {**ONE, "vpc_ids": {"westeurope": "net/office"}}
SUBNET = {**ONE, "subnet_ids": {"West Europe": "net/office/gpu"}}
NAT = {"natGateway": {"id": "/x/natGateways/one"}}
KEPT = {"delegations": [{"id": "/x/delegations/sql"}]}


def account(subnets: dict[str, Any], **settings: Any) -> Account:
    found = Account(**settings)
    found.fake.with_group("net")
    has = {"virtualNetworkPeerings": [{"id": "/x"}]} if subnets.pop("peered", None) is not None else {}
    found.fake.with_network(NET, "westeurope", subnets, **has)
    return found


def card(account: Account) -> Any:
    account.made()
    (found,) = account.fake.books.existing("nic")
    return found.facts


# --- networks ---------------------------------------------------------------------------------------------------------


def test_a_network_by_name_is_used_and_never_written() -> None:
    found = account({"AzureBastionSubnet": {}, "a-sql": KEPT, "b": {}, "c": {}}, **VPC)
    found.backend.check()
    assert card(found)["subnet"] == f"{NET}/subnets/b"
    assert found.sent("VirtualNetworks_create_or_update") == 0


def test_a_subnet_by_name_is_used() -> None:
    found = account({"gpu": {}}, **SUBNET)
    found.backend.check()
    assert card(found)["subnet"] == f"{NET}/subnets/gpu"


@pytest.mark.parametrize("way_out", [{"b": NAT}, {"b": {"routeTable": {"id": "/x"}}}, {"b": {}, "peered": {}}])
def test_machines_without_public_addresses_need_a_way_out(way_out: dict[str, Any]) -> None:
    found = account({"a": {}} | way_out if "peered" not in way_out else way_out, **VPC, public_ips=False)
    found.backend.check()
    facts = card(found)
    assert facts["subnet"].endswith("/b") and facts["address"] == ""
    assert not list(found.fake.books.existing("address"))
    found.clock.passes(90)
    machine = found.backend.describe(found.made())
    assert machine.hostname == machine.internal_ip == facts["ip"]


@pytest.mark.parametrize(
    ("settings", "subnets", "why"),
    [
        ({**VPC, "public_ips": False}, {"a": {}}, "a: without public addresses it needs a NAT gateway"),
        ({**SUBNET, "public_ips": False}, {"gpu": {}}, "gpu of westeurope can't have machines: without public"),
        (VPC, {"a": KEPT}, "a: it is kept for a service of Azure"),
        (VPC, {}, "it has none"),
        (SUBNET, {"other": {}}, "doesn't have the subnet net/office/gpu that `subnet_ids` names"),
        (
            {**ONE, "vpc_ids": {"westeurope": "net/other"}},
            {},
            "doesn't have the network net/other that `vpc_ids` names",
        ),
        ({"regions": ("eastus",), "vpc_ids": {"eastus": "net/office"}}, {"a": {}}, "for eastus is in westeurope"),
        ({**VPC, "regions": ("westeurope", "eastus")}, {"a": {}}, "has a network for eastus"),
    ],
    ids=["no way out", "nor in a subnet", "a service's", "empty", "no subnet", "no network", "elsewhere", "not all"],
)
def test_a_network_that_wont_do_is_refused_by_the_check(settings: Any, subnets: Any, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        account(dict(subnets), **settings).backend.check()


@pytest.mark.parametrize("settings", [VPC, SUBNET], ids=["network", "subnet"])
def test_a_network_that_the_login_may_not_use_is_refused_by_the_check(settings: Any) -> None:
    """Its resource group is somebody else's, and the login's role may hold in its own group alone."""
    found = account({"gpu": {}}, **settings)
    found.fake.rights_in = {"net": [{"actions": ["*/read"], "notActions": []}]}
    with pytest.raises(MissingPermission, match=r"networks of the resource group net: it lacks .*subnets/join/action"):
        found.backend.check()
    found.fake.rights_in = {"net": [{"actions": ["Microsoft.Network/virtualNetworks/*"], "notActions": []}]}
    found.backend.check()


def test_regions_are_those_of_the_networks_unless_they_are_named() -> None:
    assert regions_of(config(regions=None)) == REGIONS
    assert regions_of(config(regions=None, vpc_ids={"East US": "a/b"}, subnet_ids={"westeurope": "a/b/c"})) == (
        "eastus",
        "westeurope",
    )


# --- groups, identities, tags -----------------------------------------------------------------------------------------


def test_a_resource_group_by_name_is_used_and_must_be_there() -> None:
    found = Account(resource_group="team")
    with pytest.raises(Unfit, match="no resource group team"):
        found.backend.check()
    with pytest.raises(Unfit, match="Resource group 'team' could not be found"):
        found.made()
    found.fake.with_group("team")
    found.backend.check()
    (made,) = found.made()
    assert "/resourceGroups/team/" in made.id
    assert [each.handle for each in found.backend.list_owned()] == [made]


def test_a_machine_has_its_managed_identity() -> None:
    found = Account(vm_managed_identity="team/reader")
    with pytest.raises(Unfit, match="no managed identity team/reader"):
        found.backend.check()
    found.fake.with_group("team")
    path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/team/providers/Microsoft.ManagedIdentity"
    found.fake.with_identity(f"{path}/userAssignedIdentities/reader")
    found.backend.check()
    body = found.provider.machine(found.made()).facts["body"]
    assert body["identity"] == {
        "type": "UserAssigned",
        "userAssignedIdentities": {f"{path}/userAssignedIdentities/reader": {}},
    }


def test_an_identity_that_the_login_may_not_give_is_refused() -> None:
    found = Account(vm_managed_identity="dstack/reader")
    path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/dstack/providers/Microsoft.ManagedIdentity"
    found.fake.with_identity(f"{path}/userAssignedIdentities/reader")
    found.fake.rights = ({"actions": ["*"], "notActions": ["Microsoft.ManagedIdentity/*"]},)
    with pytest.raises(MissingPermission, match="userAssignedIdentities/assign/action"):
        found.backend.check()


def test_tags_are_on_all_that_is_made() -> None:
    found = Account(tags={"team": "ml"})
    found.made()
    for kind in ("vm", "group", "network", "security"):
        for each in found.fake.books.existing(kind):
            assert each.facts["body"]["tags"]["team"] == "ml"
    for kind in ("nic", "address"):
        (each,) = found.fake.books.existing(kind)
        assert each.facts["tags"]["team"] == "ml"


def test_a_gateway_needs_a_public_address() -> None:
    found = account({"a": NAT}, **VPC, public_ips=False)
    with pytest.raises(Unfit, match="has `public_ips: false`"):
        list(found.backend.create(replace(found.request(), open_ports=(80,))))


# --- the subscription -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind", "why"),
    [
        ({"sees": False}, MissingPermission, "it sees none"),
        ({"subscription_state": "Disabled"}, Unfit, "is Disabled"),
        ({"unregistered": frozenset({"Microsoft.Network"})}, MissingPermission, "az provider register"),
    ],
    ids=["unseen", "disabled", "unregistered"],
)
def test_a_subscription_that_wont_do_is_refused(change: Any, kind: type[BackendError], why: str) -> None:
    found = Account()
    vars(found.fake).update(change)
    with pytest.raises(kind, match=why):
        found.backend.check()


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"tenant_id": "other"}, "isn't of the tenant other"), ({"regions": ("mars",)}, "no region mars")],
    ids=["tenant", "region"],
)
def test_a_wrong_tenant_or_region_is_named(settings: Any, why: str) -> None:
    creds = {"type": "client", "client_id": "app-0123456789", "client_secret": "never-shown/s3cr3t~of-the-app"}
    creds["tenant_id"] = config().tenant_id
    with pytest.raises(Unfit, match=why):
        Account(**{"creds": creds, **settings}).backend.check()


# --- prices from a file -----------------------------------------------------------------------------------------------


def test_a_file_has_prices_where_the_list_doesnt_answer(tmp_path: Path) -> None:
    found = Account()
    found.fake.prices_down = True
    with pytest.raises(Transient):
        found.backend.offers()
    file = tmp_path / "prices.csv"
    file.write_text(f"provider,instance_type,region,price,spot_price\nazure,{SMALL},westeurope,0.2,0.05\n")
    backend = AzureBackend(config(), found.client, found.clock.now, OfflinePrices(file))
    offers = backend.offers()
    assert [(each.instance.name, each.instance.resources.spot) for each in offers] == [(SMALL, False), (SMALL, True)]
    assert all(each.terms.prices.startswith("prices.csv, ") for each in offers)
    assert 0.2 < offers[0].price < 0.23, "with its disk and address"
    assert list(backend.create(request_for(offers[1])))
    found.fake.prices_down, found.fake.no_prices = False, frozenset({SMALL})
    sources = {each.instance.name: each.terms.prices for each in backend.offers() if each.region == "westeurope"}
    assert sources.pop(SMALL).startswith("prices.csv, ") and set(sources.values()) == {""}
