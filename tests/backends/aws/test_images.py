"""Which image a machine starts from: AWS's own, or the account's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.backends.aws.images import AwsImages, Image
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offers import Gpu, InstanceType, Offer, Resources
from chalicelib.errors import Unfit
from tests.backends.aws.account import Account
from tests.backends.aws.provider import clients, config
from tests.backends.clock import Clock

OWNER = "210987654321"
X86, ARM = "ami-0d1a000000000001", "ami-0d1a000000000002"  # AWS's
Images = Callable[..., AwsImages]


@pytest.fixture
def images(account: Account, clock: Clock) -> Images:
    """Of an account with these `os_images`."""
    return lambda **given: AwsImages(clients(account), config(os_images=given or None), clock.now)


def offer(name: str, gpu: str = "", arch: str = "x86") -> Offer:
    gpus = (Gpu(name=gpu, memory_mib=16_384, vendor="nvidia"),) if gpu else ()
    has = Resources(cpus=4, memory_mib=16_384, gpus=gpus, cpu_arch=arch)
    return Offer(backend="aws", instance=InstanceType(name=name, resources=has), region="us-east-1", price=1.0)


def named(name: str, owner: str = OWNER) -> dict[str, str]:
    return {"name": name, "owner": owner, "user": "ubuntu"}


@pytest.mark.parametrize(
    ("what", "id"),
    [
        (offer("g5.xlarge", "A10G"), X86),
        (offer("m7i.large"), X86),
        (offer("g5g.xlarge", "T4G", "arm"), ARM),
        (offer("m7g.large", arch="arm"), ARM),
    ],
)
def test_awss_own_image_is_for_the_architecture(images: Images, what: Offer, id: str) -> None:
    assert images().of(what).id == id


def test_a_gpu_that_awss_image_has_no_driver_for_needs_another(images: Images) -> None:
    with pytest.raises(Unfit, match=r"p3\.2xlarge") as raised:
        images().of(offer("p3.2xlarge", "V100"))
    assert "os_images.nvidia" in raised.value.hint
    assert images(nvidia=named("our-image-*")).of(offer("p3.2xlarge", "V100")).id == "ami-0b1a000000000004"


def test_of_the_accounts_images_the_newest_of_the_owner_is_taken_with_its_root(images: Images) -> None:
    """Anybody may give an image any name: a newer one of another account has it, too."""
    found = images(cpu=named("our-image-*")).of(offer("m7i.large"))
    assert found == Image("ami-0b1a000000000004", "/dev/xvda", found.root_gib) and found.root_gib > 0


def test_each_kind_has_its_image(images: Images) -> None:
    both = images(cpu=named("our-image-1"), nvidia=named("our-image-2"))
    assert [both.of(each).id[-1] for each in (offer("m7i.large"), offer("g5.xlarge", "A10G"))] == ["3", "4"]
    with pytest.raises(Unfit, match=r"no image for m7i\.large") as raised:
        images(nvidia=named("our-image-2")).of(offer("m7i.large"))
    assert "os_images.cpu" in raised.value.hint


@pytest.mark.parametrize(
    ("given", "what", "message"),
    [
        (named("our-image-3"), offer("m7i.large"), "no image our-image-3 of 210987654321 for x86_64"),
        (named("our-image-1", "self"), offer("m7i.large"), "no image our-image-1 of this account for x86_64"),
        (named("our-image-*"), offer("m7g.large", arch="arm"), r"no image our-image-\* of 210987654321 for arm64"),
    ],
)
def test_an_image_that_isnt_there_or_is_for_another_architecture_is_told(
    images: Images, given: dict[str, str], what: Offer, message: str
) -> None:
    with pytest.raises(Unfit, match=message):
        images(cpu=given).of(what)


def test_an_image_is_looked_up_again_after_a_while_or_when_it_may_be_gone(
    images: Images, account: Account, clock: Clock
) -> None:
    cache, counts = images(cpu=named("our-image-1")), []
    for after in (lambda: None, lambda: None, cache.forget, lambda: setattr(clock, "at", clock.at + 10 * MINUTE)):
        after()
        cache.of(offer("m7i.large"))
        counts.append(len(account.params_of("DescribeImages")))
    assert counts == [1, 1, 2, 3]
