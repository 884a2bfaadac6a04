"""What functions ask of EC2 in their own name is what their policies allow, and nothing is allowed that they don't ask.

Each plays the calls of the protocol that its code makes, on an account that keeps every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offers import Offer
from chalicelib.errors import Gone, InUse, Transient
from infra.functions import named
from tests.backends.aws.account import Account, Script
from tests.backends.aws.provider import clients, config
from tests.backends.clock import Clock
from tests.backends.conformance import group_request_for, inside, request_for, volume_request
from tests.backends.test_aws import usual_offers

HERE = "us-east-1"
# What AWS checks beside the action that is called: the tags of what is created, a machine's role, the role of spot.
IMPLIED = {"ec2:CreateTags", "iam:PassRole", "iam:CreateServiceLinkedRole"}


class Site:
    """An account in one region, and what is there of ours."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.clock = Clock()
        self.account = Account(self.clock.now, Script(lag=0, addresses=20))
        self.begun = 0
        self.backend = self.anew()

    def anew(self) -> AwsBackend:
        """As another process has it, which remembers nothing."""
        settings = config(regions=[HERE], public_ips=True, **self.settings)
        return AwsBackend(settings, clients(self.account), self.clock.now)

    def begin(self) -> None:
        self.begun, self.backend = len(self.account.calls), self.anew()

    def called(self) -> set[str]:
        return {f"{call.service}:{call.operation}" for call in self.account.calls[self.begun :]}

    def pass_(self) -> None:
        self.clock.at += 2 * MINUTE

    def leave_a_card(self) -> None:
        """A network card whose machine is gone."""
        owner = [{"Key": key, "Value": value} for key, value in request_for(offer("m7i.large"), "card").tags]
        self.account.places.loose["eni-1"] = {
            "NetworkInterfaceId": "eni-1",
            "Status": "available",
            "TagSet": owner,
            "Tags": owner,
            "Region": HERE,
        }


def offer(name: str, *, spot: bool = False) -> Offer:
    return next(
        each
        for each in usual_offers()
        if (each.region, each.instance.name, each.instance.resources.spot) == (HERE, name, spot)
    )


def allowed(function: str) -> set[str]:
    grants = [grant for grant in named(function).allowed if grant.sid.startswith("Aws")]
    return {action for grant in grants for action in grant.actions}


def machines(site: Site) -> list[Sequence[Handle]]:
    """One in a cluster, which needs an address of its own; one of spot; one in a reservation."""
    big, small = offer("p4d.24xlarge"), offer("m7i.large")
    group = site.backend.create_group(group_request_for(big))
    site.backend.create_group(group_request_for(big))  # which was made already
    reserved = site.account.places.reserve(HERE, (small.availability_zones or ())[0], small.instance.name)
    requests = (
        inside(request_for(big), group),
        request_for(offer("m7i.large", spot=True), "spot"),
        replace(request_for(small, "reserved"), reservation=reserved),
    )
    return [list(site.backend.create(each)) for each in requests]


def describe(site: Site, made: Iterable[Sequence[Handle]]) -> None:
    site.pass_()
    for handles in made:
        site.backend.describe(handles)


def end_all(site: Site) -> None:
    for owned in site.backend.list_owned():
        with suppress(Gone, Transient):
            site.backend.terminate(owned.handle)
    for group in site.backend.list_owned_groups():
        with suppress(Gone, InUse):
            site.backend.delete_group(group.handle)
    for volume in site.backend.list_owned_volumes():
        with suppress(Gone):
            site.backend.delete_volume(volume.handle)


def bought() -> set[str]:
    """By effects."""
    site = Site()
    site.begin()
    made = machines(site)
    describe(site, made)
    disk = site.backend.create_volume(replace(volume_request(HERE), zone=made[2][-1].data["zone"]))
    site.pass_()
    site.backend.register_volume(disk.id, HERE, "")
    for move in (site.backend.attach_volume, site.backend.detach_volume):
        move(disk, made[2])
        site.pass_()
    site.leave_a_card()
    end_all(site)
    return site.called()


def swept() -> set[str]:
    site = Site()
    describe(site, machines(site))
    disk = site.backend.create_volume(volume_request(HERE))
    site.leave_a_card()
    site.pass_()
    site.begin()
    assert site.backend.describe_volume(disk).price, "of one that shows after all: what is told of it is kept"
    end_all(site)
    return site.called()


def fetched() -> set[str]:
    site = Site()
    site.begin()
    assert site.backend.offers()
    return site.called()


def checked() -> set[str]:
    """Of credentials, while something of ours is there."""
    site = Site()
    describe(site, machines(site))
    site.account.session().client("iam", region_name=HERE).create_instance_profile(InstanceProfileName="machines")
    site.settings["iam_instance_profile"] = "machines"
    site.begin()
    site.backend.check()
    return site.called()


@pytest.mark.slow
def test_work_on_accounts_asks_what_the_policy_of_its_function_allows_and_nothing_else() -> None:
    """Whatever an account with the function's own credentials has done: so such credentials can be checked, too."""
    parts = [bought(), swept(), fetched(), checked()]
    assert set().union(*parts) | IMPLIED == allowed("provider_clouds")
    assert not any(allowed(name) for name in ("sweep_orphans", "refresh_catalog", "api", "reconcile"))
