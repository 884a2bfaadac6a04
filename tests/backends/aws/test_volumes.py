"""Volumes on AWS beyond the suite: what they cost, and that nothing waits for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.aws.permissions import PERMISSIONS
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.owner import OFFERED
from chalicelib.errors import NotYet, Unfit
from tests.backends.aws.account import Account, Fault
from tests.backends.aws.provider import clients, config
from tests.backends.aws.shop import volume_price
from tests.backends.clock import Clock
from tests.backends.conformance import request_for, volume_request
from tests.backends.test_aws import usual_offers

HERE = "us-east-1"


class Site:
    def __init__(self) -> None:
        self.clock = Clock()
        self.account = Account(self.clock.now)
        self.backend = AwsBackend(config(regions=[HERE]), clients(self.account), self.clock.now)

    def price_of(self, **params: Any) -> float | None:
        """Of a volume of somebody's."""
        volume = self.account.disks.add(HERE, f"{HERE}a", {}, **params)
        return self.backend.register_volume(volume, HERE, "").price

    def price_requests(self) -> int:
        return sum(call.operation == "GetProducts" for call in self.account.calls)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.account.close()


def test_a_new_volume_costs_its_size_a_month(site: Site) -> None:
    request = volume_request(HERE)
    handle = site.backend.create_volume(request)
    site.clock.at += 2 * MINUTE
    expected = volume_price("gp3", HERE) * request.size_gib
    assert [site.backend.describe_volume(handle).price for _ in range(3)] == [pytest.approx(expected)] * 3
    assert site.price_requests() == 1


@pytest.mark.parametrize(
    ("params", "per_gb"),
    [
        ({"VolumeType": "gp3"}, 0.08),
        ({"VolumeType": "gp3", "Iops": 4000}, None),
        ({"VolumeType": "gp3", "Throughput": 250}, None),
        ({"VolumeType": "gp2"}, 0.1),
        ({"VolumeType": "io2"}, None),
    ],
)
def test_a_price_is_told_only_if_it_is_that_of_the_size(
    site: Site, params: dict[str, Any], per_gb: float | None
) -> None:
    assert site.price_of(Size=50, **params) == (None if per_gb is None else pytest.approx(50 * per_gb))


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException", "InternalError"])
def test_nothing_waits_for_a_price(site: Site, code: str, caplog: pytest.LogCaptureFixture) -> None:
    site.account.script.faults.append(Fault("GetProducts", code))
    assert site.price_of(VolumeType="gp3") is None
    assert "the price of disks of type gp3 in us-east-1 isn't known" in caplog.text
    assert (site.price_of(VolumeType="gp3"), site.price_requests()) == (None, 1), "it isn't asked for again at once"
    site.clock.at += 11 * MINUTE
    assert site.price_of(VolumeType="gp3") == pytest.approx(8 * 0.08)


@pytest.fixture
def apart(site: Site) -> tuple[Handle, list[Handle]]:
    """A volume, and a machine in its zone."""
    disk = site.backend.create_volume(volume_request(HERE))
    bought = next(each for each in usual_offers() if each.key == f"aws/{HERE}/g5.xlarge/on-demand")
    request = replace(request_for(bought), zones=(disk.data["zone"],))
    machine = list(site.backend.create(request))
    site.clock.at += 2 * MINUTE
    return disk, machine


def test_a_name_that_another_volume_has_meanwhile_is_left_to_it(site: Site, apart: tuple[Handle, list[Handle]]) -> None:
    """Of two that are attached at the same time, the machine shows neither yet."""
    disk, machine = apart
    taken = "Invalid value '/dev/sdf' for unixDevice. Attachment point /dev/sdf is already in use"
    site.account.script.faults.append(Fault("AttachVolume", "InvalidParameterValue", message=taken))
    site.backend.attach_volume(disk, machine)
    assert [params["Device"] for params in site.account.params_of("AttachVolume")] == ["/dev/sdf", "/dev/sdg"]
    site.clock.at += 2 * MINUTE
    assert [where for where, _ in site.backend.describe_volume(disk).attached_to] == [machine[-1].id]


@pytest.mark.parametrize("code", ["IncorrectState", "InvalidAttachment.NotFound"])
def test_one_that_is_detached_meanwhile_is_detached(site: Site, apart: tuple[Handle, list[Handle]], code: str) -> None:
    disk, machine = apart
    site.backend.attach_volume(disk, machine)
    site.clock.at += MINUTE
    site.account.script.faults.append(Fault("DetachVolume", code))
    site.backend.detach_volume(disk, machine)
    site.account.script.faults.append(Fault("DetachVolume", "InvalidParameterValue"))
    with pytest.raises(Unfit):
        site.backend.detach_volume(disk, machine)


def test_a_machine_that_isnt_up_gets_its_volumes_later(site: Site) -> None:
    disk = site.backend.create_volume(volume_request(HERE))
    bought = next(each for each in usual_offers() if each.key == f"aws/{HERE}/g5.xlarge/on-demand")
    site.account.script.boot = 5 * MINUTE
    machine = list(site.backend.create(replace(request_for(bought), zones=(disk.data["zone"],))))
    site.clock.at += 2 * MINUTE
    with pytest.raises(NotYet, match=f"{machine[0].id} is still starting"):
        site.backend.attach_volume(disk, machine)
    site.clock.at += 4 * MINUTE
    site.backend.attach_volume(disk, machine)


def test_no_other_name_makes_a_wrong_request_right(site: Site, apart: tuple[Handle, list[Handle]]) -> None:
    disk, machine = apart
    site.account.script.faults.append(Fault("AttachVolume", "InvalidParameterValue", message="wrong"))
    with pytest.raises(Unfit, match="wrong"):
        site.backend.attach_volume(disk, machine)
    assert len(site.account.params_of("AttachVolume")) == 1


def test_whom_a_disk_is_offered_to_is_a_tag_of_its_owners(site: Site) -> None:
    """IAM asks for the same tag, whatever the control plane thinks."""
    for tags, want in (({OFFERED: "main  other"}, ("main", "other")), ({"team": "web"}, ())):
        volume = site.account.disks.add(HERE, f"{HERE}a", tags)
        assert site.backend.register_volume(volume, HERE, "").offered_to == want
    (foreign,) = (each for each in PERMISSIONS if each.sid == "AttachForeign")
    assert foreign.condition == {"StringLike": {f"aws:ResourceTag/{OFFERED}": "*"}}
    touching = {each.sid for each in PERMISSIONS if {"ec2:AttachVolume", "ec2:DetachVolume"} & {*each.actions}}
    assert touching == {"AttachForeign", "Change"}, "and what is ours"
