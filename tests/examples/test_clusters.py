"""An example for each network between machines: planned in its own fleet, against what sells that network.

Whatever its page says that a job gets is compared with the offer, and what it says of the speed with its command.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.configuration.parse import parse
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Gpu, Interconnect, Offer
from chalicelib.domain.specs.fleets import FleetConfiguration, FleetSpec
from chalicelib.domain.specs.runs import RunSpec, TaskConfiguration
from chalicelib.errors import InsufficientCapacity
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.requirements import JobRequirements, requirements_of
from chalicelib.planning.placing.plan_offers import plan_offers
from tests.backends.clock import Clock
from tests.backends.gcp import test_gpudirect, test_interfaces
from tests.backends.gcp.conftest import Site
from tests.backends.kubernetes import provider as kubernetes
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.examples.catalogues import Sold, catalogues
from tests.harness.server import ROOT
from tests.world import nouns as b
from tests.world.nouns import Images

CLUSTERS = ROOT / "examples" / "clusters"
FOLDERS = sorted(path.parent.name for path in CLUSTERS.glob("*/fleet.dstack.yml"))
TASKS = sorted(path for path in CLUSTERS.glob("*/*.dstack.yml") if path.name != "fleet.dstack.yml")
H100 = b.resources(cpus=192, gb=2048).with_(gpus=(Gpu(name="H100", memory_mib=81_920, vendor="nvidia"),) * 8)


def of_google(offers: Callable[[Site], Sequence[Offer]]) -> Sold:
    return offers(Site()), catalogues()["gcp"][1]


SOLD: Mapping[str, Callable[[], Sold]] = {
    "aws-efa": lambda: catalogues()["aws"],
    "azure-infiniband": lambda: catalogues()["azure"],
    "crusoe-infiniband": lambda: catalogues()["crusoe"],
    "ethernet": lambda: catalogues()["aws"],
    "gcp-roce": lambda: of_google(lambda site: test_interfaces.wired(site).offers()),
    "gcp-tcpx": lambda: of_google(lambda site: test_gpudirect.wired(site, test_gpudirect.HIGH, 4).offers()),
    "gcp-tcpxo": lambda: of_google(lambda site: test_gpudirect.wired(site).offers()),
    "nebius-infiniband": lambda: catalogues()["nebius"],
    "runpod": lambda: catalogues()["runpod"],
}
NETWORKS = {  # what the offer itself calls it
    "azure-infiniband": "InfiniBand",
    "crusoe-infiniband": "InfiniBand",
    "gcp-roce": "RoCE",
    "gcp-tcpx": "GPUDirect-TCPX",
    "gcp-tcpxo": "GPUDirect-TCPXO",
    "nebius-infiniband": "InfiniBand",
}
ASKED_FOR = {  # how NCCL is told that it must use it, so that it fails rather than go on without
    "aws-efa": "Libfabric",
    "gcp-roce": "gIB",
    "gcp-tcpx": "GPUDirectTCPX_v7",
    "gcp-tcpxo": "FasTrak",
    "ethernet": "Socket",
    "runpod": None,
}


@cache
def page(folder: str) -> str:
    return re.sub(r"\s+", " ", (CLUSTERS / folder / "README.md").read_text(encoding="utf-8"))


@cache
def fleet_of(folder: str) -> FleetConfiguration:
    config = parse((CLUSTERS / folder / "fleet.dstack.yml").read_text(encoding="utf-8"))
    assert isinstance(config, FleetConfiguration) and config.placement == "cluster"
    return config


def task_of(path: Path) -> TaskConfiguration:
    config = parse(path.read_text(encoding="utf-8"))
    assert isinstance(config, TaskConfiguration) and config.nodes == 2
    assert [each.name for each in config.fleets or ()] == [fleet_of(path.parent.name).name]
    return config


def needs(path: Path) -> list[JobRequirements]:
    spec = RunSpec.model_validate({"run_name": "all", "configuration": task_of(path).model_dump()})
    return [requirements_of(spec, job) for job in job_specs(spec, images=Images())]


def view(folder: str, hosts: int = 0) -> FleetView:
    config = fleet_of(folder)
    made = b.fleet(config.name or folder)
    offer = b.offer("host", 0.0, backend="remote", region="", has=H100)
    there = [b.host(num, made, offer=offer, internal_ip=f"10.0.0.{num}") for num in range(hosts)]
    return FleetView(made, FleetSpec(configuration=config), tuple(there))


def planned(path: Path, sold: Sold) -> Iterator[Offer]:
    """The offers for each of its nodes."""
    offers, facts = sold
    for each in needs(path):
        known: Mapping[str, BackendFacts] = {facts.name: facts}
        found, _, notes = plan_offers(each, [view(path.parent.name)], OfferBook(offers), 1000, facts=known)
        assert found, notes
        yield from found


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in TASKS if path.parent.name in SOLD], ids=lambda path: path.parent.name
)
def test_its_fleet_buys_machines_of_that_network_and_no_others(path: Path) -> None:
    folder = path.parent.name
    config = fleet_of(folder)
    for offer in planned(path, SOLD[folder]()):
        network = offer.terms.interconnect
        assert (network.name if network else None) == NETWORKS.get(folder), offer
        if folder != "ethernet":
            assert [offer.backend] == [str(each) for each in config.backends or ()]
        if folder == "aws-efa":
            assert offer.backend_data["efa"]
        if network is not None:
            told_of(folder, network)


def told_of(folder: str, network: Interconnect) -> None:
    """Its page names all that a job gets; of many variables, some."""
    text = page(folder)
    paths = (*network.folders, *network.devices, *network.writable)
    assert [each for each in paths if each not in text] == []
    untold = [each for each in network.env if each not in text]
    assert not untold or (re.search("among them|such as", text) and len(untold) < len(network.env)), untold


def test_every_example_of_a_network_is_planned_here() -> None:
    others = {"kubernetes-rdma", "own-infiniband", "own-roce"}
    assert set(FOLDERS) == {path.parent.name for path in TASKS} == set(SOLD) | others


@pytest.mark.parametrize("folder", ["own-infiniband", "own-roce"])
def test_hosts_of_ones_own_have_it_too(folder: str) -> None:
    for each in needs(CLUSTERS / folder / "nccl.dstack.yml"):
        found, _, notes = plan_offers(each, [view(folder, hosts=2)], OfferBook([]), 10)
        assert [offer.backend for offer in found] == ["remote"] * 2, notes


def pods(need: JobRequirements, rdma: Mapping[str, str]) -> Sequence[Offer]:
    """Of a cluster with two nodes that list these devices."""
    clock = Clock()
    cluster = Cluster(clock.now, kubernetes.REGIONS[0])
    cluster.add_namespace(kubernetes.NAMESPACE)
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    devices: Any = {"nvidia.com/gpu": "8", **rdma}
    for name in "ab":
        cluster.add_node(name, labels=labels, cpu="192", memory="2000Gi", **devices)
    with cluster.serving():
        backend = KubernetesBackend(kubernetes.config_of([cluster], gpu_resources={"rdma/ib": 1}), now=clock.now)
        with contextlib.closing(backend):
            return backend.offers_for(OfferRequest(resources=need.query.resources, nodes=need.query.nodes))


@pytest.mark.slow
def test_pods_go_to_nodes_with_devices_of_rdma() -> None:
    for need in needs(CLUSTERS / "kubernetes-rdma" / "nccl.dstack.yml"):
        assert pods(need, {"rdma/ib": "4"})
        with pytest.raises(InsufficientCapacity, match="only 0 rdma/ib"):
            pods(need, {})


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.parent.name)
def test_it_insists_on_the_network_and_on_its_speed(path: Path) -> None:
    config, folder = task_of(path), path.parent.name
    env = config.env
    assert env["NCCL_DEBUG"] == "INFO" and env.get("NCCL_NET") == ASKED_FOR.get(folder, "IB")
    least = re.search(r"all_reduce\.py 4096 (\S+)", config.commands[-1])
    assert least is not None and re.search(rf"fails? below {re.escape(least[1])}\b", page(folder))
    (row,) = [line for line in (CLUSTERS / "README.md").read_text().splitlines() if f"({folder}/README.md)" in line]
    most, words = row.split("|")[3:5]
    assert most.split(",")[-1].strip() == least[1]
    assert words.strip() == f"`Using network {env.get('NCCL_NET', 'IB')}`" and words.strip() in page(folder)
