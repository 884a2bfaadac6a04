"""Clusters with several network cards: which machine gets which, in which networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.gcp.interfaces import ROCE
from chalicelib.backends.kit import docker_setup
from chalicelib.backends.kit.scripts import PLACE
from chalicelib.domain.offers import Offer
from chalicelib.errors import Unfit
from tests.backends.conformance.requests import group_request_for, inside, request_for
from tests.backends.gcp.conftest import Site

EXTRA = [f"gpu-{number}" for number in range(9)]


def wired(site: Site, extra: int = 1, rdma: str = "us-central1-b") -> GcpBackend:
    for name in EXTRA[:extra]:
        site.fake.networks[name] = {"us-central1"}
    site.fake.script.limits |= {"GPUS_ALL_REGIONS": 1_000, "CPUS_ALL_REGIONS": 10_000}
    if rdma:
        site.fake.rdma["rdma"] = rdma
    given: dict[str, Any] = {"extra_vpcs": EXTRA[:extra]} if extra else {}
    return site.new(site.configured(**given, **({"roce_vpcs": ["rdma"]} if rdma else {})))


def offered(backend: GcpBackend, name: str) -> list[Offer]:
    return [each for each in backend.offers() if each.instance.name == name]


def cards(site: Site, handles: Any) -> list[tuple[str, str]]:
    nics = site.provider.machine(list(handles)).facts["body"]["networkInterfaces"]
    assert "accessConfigs" in nics[0] and not any("accessConfigs" in each for each in nics[1:])
    return [(each["nicType"], each["subnetwork"].rpartition("/")[2]) for each in nics]


def test_a4_has_eight_cards_for_rdma_in_the_zone_of_their_network(site: Site) -> None:
    backend = wired(site)
    (offer,) = offered(backend, "a4-highgpu-8g")
    assert offer.instance.resources.spot and offer.availability_zones == ("us-central1-b",)
    assert offer.terms.interconnect == ROCE and offer.terms.no_volumes
    made = cards(site, backend.create(request_for(offer)))
    assert made == [("GVNIC", "training"), ("GVNIC", "gpu-0"), *(("MRDMA", f"rdma-{n}") for n in range(8))]
    with pytest.raises(Unfit, match=r"a4-highgpu-8g needs .* in us-central1-b"):
        list(backend.create(replace(request_for(offer, "two"), zones=("us-central1-c",))))


@pytest.mark.parametrize(("extra", "rdma"), [(0, ""), (1, ""), (0, "us-central1-b"), (1, "europe-west4-a")])
def test_without_its_networks_a4_isnt_offered(site: Site, extra: int, rdma: str) -> None:
    assert offered(wired(site, extra, rdma), "a4-highgpu-8g") == []


def test_a3_mega_has_its_cards_in_clusters_alone(site: Site) -> None:
    backend = wired(site, 9, "")
    request = request_for(next(each for each in offered(backend, "a3-megagpu-8g") if each.region == "us-central1"))
    assert cards(site, backend.create(request)) == [("GVNIC", "training")]
    group = backend.create_group(group_request_for(request.offer))
    clustered = inside(request_for(request.offer, "two"), group)
    assert cards(site, backend.create(clustered)) == [("GVNIC", "training"), *(("GVNIC", name) for name in EXTRA[:8])]


def test_as_many_cards_as_there_are_networks(site: Site) -> None:
    backend = wired(site, 2, "")
    request = request_for(next(each for each in offered(backend, "a3-megagpu-8g") if each.region == "us-central1"))
    group = backend.create_group(group_request_for(request.offer))
    assert len(cards(site, backend.create(inside(request, group)))) == 3


def a4x(site: Site, **reserved: Any) -> tuple[GcpBackend, list[Offer]]:
    name = site.fake.reserve("us-central1-b", "a4x-highgpu-4g", 18, deploymentType="DENSE", **reserved)
    backend = wired(site)
    offers = offered(backend, "a4x-highgpu-4g")
    assert [offer.reservation for offer in offers] == [name], "it is sold in reservations alone"
    return backend, offers


def test_a4x_has_its_own_image_four_cards_for_rdma_and_a_policy_of_one_rack(site: Site) -> None:
    backend, (offer,) = a4x(site)
    assert offer.instance.resources.cpu_arch == "arm" and offer.terms.interconnect == ROCE
    assert [each.name for each in offer.instance.resources.gpus] == ["GB200"] * 4
    group = backend.create_group(group_request_for(offer))
    request = replace(inside(request_for(offer), group), reservation=offer.reservation)
    handles = list(backend.create(request))
    assert cards(site, handles) == [
        ("GVNIC", "training"),
        ("GVNIC", "gpu-0"),
        *(("MRDMA", f"rdma-{n}") for n in range(4)),
    ]
    body = site.provider.machine(handles).facts["body"]
    assert body["disks"][0]["initializeParams"]["sourceImage"].endswith("arm64-with-nvidia-580")
    assert body["scheduling"]["provisioningModel"] == "RESERVATION_BOUND"
    (script,) = (each["value"] for each in body["metadata"]["items"] if each["key"] == "user-data")
    assert script.startswith("#cloud-config\n")
    setup = yaml.safe_load(script)
    assert [each["content"] for each in setup["write_files"]] == [docker_setup.SCRIPT, request.user_data]
    assert setup["runcmd"] == [docker_setup.PLACE, PLACE]


def test_a4x_is_refused_without_a_policy(site: Site) -> None:
    backend, (offer,) = a4x(site)
    with pytest.raises(Unfit, match="a4x-highgpu-4g needs a placement policy"):
        list(backend.create(replace(request_for(offer), reservation=offer.reservation)))


def test_a_policy_of_other_machines_has_no_topology(site: Site) -> None:
    backend = wired(site)
    (offer,) = offered(backend, "a4-highgpu-8g")
    group = backend.create_group(group_request_for(offer))
    assert list(backend.create(inside(request_for(offer), group)))
