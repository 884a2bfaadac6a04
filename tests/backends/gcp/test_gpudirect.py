"""GPUDirect of A3 machines: who has it, from which image, and what a job on several of them gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.configuration.server import parse_backend
from chalicelib.domain.offers import Interconnect, Offer
from chalicelib.errors import Invalid, Unfit
from tests.backends.conformance.requests import group_request_for, inside, request_for
from tests.backends.gcp.conftest import Site
from tests.backends.gcp.places import Image

FAMILY = "projects/test-project/global/images/family/a3"
HIGH, MEGA = "a3-highgpu-8g", "a3-megagpu-8g"


def wired(site: Site, of: str = MEGA, extra: int = 8, **more: Any) -> GcpBackend:
    names = [f"gpu-{number}" for number in range(extra)]
    for name in names:
        site.fake.networks[name] = {"us-central1"}
    site.fake.images[FAMILY.removeprefix("projects/")] = Image(gib=60)
    site.fake.script.limits |= {"GPUS_ALL_REGIONS": 1_000, "CPUS_ALL_REGIONS": 10_000}
    return site.new(site.configured(extra_vpcs=names, gpudirect={of: {"image": FAMILY, **more}}))


def offer_of(backend: GcpBackend, name: str, region: str = "us-central1") -> Offer:
    return next(each for each in backend.offers() if (each.instance.name, each.region) == (name, region))


def fast(backend: GcpBackend, name: str) -> Interconnect:
    found = offer_of(backend, name).terms.interconnect
    assert found is not None
    return found


def test_a3_mega_has_tcpxo(site: Site) -> None:
    found = fast(wired(site), MEGA)
    assert (found.name, found.libraries) == ("GPUDirect-TCPXO", "/var/lib/tcpxo/lib64")
    assert (found.folders, found.writable) == (("/var/lib/tcpxo",), ("/dev/aperture_devices",))
    assert found.env["NCCL_SOCKET_IFNAME"] == found.env["NCCL_FASTRAK_CTRL_DEV"] == "enp0s12"
    assert found.env["NCCL_FASTRAK_IFNAME"].split(",")[::7] == ["enp6s0", "enp142s0"]
    plugin, receiver = found.sidecars
    assert plugin.installs and plugin.args == ("install", "--install-nccl") and "nccl-plugin" in plugin.image
    assert receiver.ready and "--num_nics=8" in receiver.args and not receiver.installs
    assert receiver.mounts == {"/usr/lib/x86_64-linux-gnu": "/usr/local/nvidia/lib64"}


def test_a3_high_has_tcpx(site: Site) -> None:
    found = fast(wired(site, HIGH, 4), HIGH)
    assert (found.name, found.writable) == ("GPUDirect-TCPX", ("/run/tcpx",))
    assert found.env["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] == "eth1,eth2,eth3,eth4"
    _, receiver = found.sidecars
    assert receiver.mounts["/run/tcpx"] == "/run/tcpx" and receiver.args[-1] == "--verbose 128 2 0"


def test_what_the_account_says_wins(site: Site) -> None:
    names = [f"eth{number}" for number in range(9)]
    own = {"plugin": "own/plugin:1", "receiver": "own/receiver:1", "driver_libraries": "/opt/lib", "interfaces": names}
    found = fast(wired(site, **own), MEGA)
    assert [each.image for each in found.sidecars] == ["own/plugin:1", "own/receiver:1"]
    assert found.sidecars[1].mounts == {"/opt/lib": "/usr/local/nvidia/lib64"}
    assert (found.env["NCCL_SOCKET_IFNAME"], found.env["NCCL_FASTRAK_IFNAME"]) == ("eth0", ",".join(names[1:]))


def test_only_the_configured_type_has_it_and_only_where_its_networks_are(site: Site) -> None:
    backend = wired(site)
    assert offer_of(backend, HIGH).terms.interconnect is None
    assert offer_of(backend, MEGA, "europe-west4").terms.interconnect is None


def test_its_machines_start_from_the_image_that_the_account_names(site: Site) -> None:
    backend = wired(site)
    offer = offer_of(backend, MEGA)
    group = backend.create_group(group_request_for(offer))
    body = site.provider.machine(list(backend.create(inside(request_for(offer), group)))).facts["body"]
    assert body["disks"][0]["initializeParams"]["sourceImage"] == FAMILY
    assert [each["nicType"] for each in body["networkInterfaces"]] == ["GVNIC"] * 9
    small = request_for(offer_of(backend, "n2-standard-2"), "two")
    other = site.provider.machine(list(backend.create(small))).facts["body"]
    assert other["disks"][0]["initializeParams"]["sourceImage"] != FAMILY


def test_a_disk_is_at_least_as_large_as_the_image(site: Site) -> None:
    backend = wired(site)
    request = replace(request_for(offer_of(backend, MEGA)), disk_mib=1024)
    body = site.provider.machine(list(backend.create(request))).facts["body"]
    assert body["disks"][0]["initializeParams"]["diskSizeGb"] == "60"


def test_an_image_that_isnt_there_is_named_by_the_check(site: Site) -> None:
    backend = wired(site)
    del site.fake.images[FAMILY.removeprefix("projects/")]
    with pytest.raises(Unfit, match=f"There is no image {FAMILY}") as wrong:
        backend.check()
    assert f"`gpudirect.{MEGA}.image`" in wrong.value.hint


@pytest.mark.parametrize(
    ("gpudirect", "why"),
    [
        (f"{{{MEGA}: {{image: {FAMILY}}}}}", "GPUDirect of a3-megagpu-8g needs 8 `extra_vpcs`, and there are 4"),
        (f"{{{HIGH}: {{image: {FAMILY}, interfaces: [eth0]}}}}", "a3-highgpu-8g has 5 network cards"),
        (f"{{{HIGH}: {{image: a3}}}}", "`a3` isn't a family of images"),
        (f"{{a2-highgpu-1g: {{image: {FAMILY}}}}}", "a2-highgpu-1g"),
    ],
)
def test_what_cant_work_is_refused(gpudirect: str, why: str) -> None:
    text = "type: gcp\nproject_id: p\ncreds: {type: default}\nextra_vpcs: [a, b, c, d]\ngpudirect: " + gpudirect
    with pytest.raises(Invalid) as wrong:
        parse_backend(text)
    assert why in str(wrong.value)
