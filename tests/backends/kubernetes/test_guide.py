"""`docs/guides/kubernetes.md`: what it writes is accepted, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.agent.gateway.packages import NAMES
from chalicelib.backends.kubernetes.checking import OLDEST
from chalicelib.backends.kubernetes.config import ZONE
from chalicelib.backends.kubernetes.devices import resources_of
from chalicelib.backends.kubernetes.kubeconfig import clusters
from chalicelib.backends.kubernetes.pods import pod
from chalicelib.configuration.parse import parse
from chalicelib.configuration.server import parse_backend
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.planning.gateways.gateway_machines import SMALL_CONTAINER
from tests.backends.conformance.requests import request_for
from tests.backends.kubernetes.bodies import T4, node
from tests.backends.kubernetes.test_offers import offers, search

DOCS = Path(__file__).parents[3] / "docs"
GUIDE, EXAMPLES = (DOCS / "guides" / "kubernetes.md").read_text(), DOCS / "examples" / "kubernetes"
BLOCKS = re.findall(r"(?ms)^```yaml\n(.*?)^```", GUIDE)
BACKEND, CONTEXTS, NEAR, FLEET, TASK, CLUSTER, NODES, NETWORK, RACKS, VOLUME, GATEWAYS, GATEWAY, BALANCED = BLOCKS


def test_its_backend_is_one_cluster_and_more_contexts_are_more() -> None:
    config: Any = parse_backend(BACKEND)
    (cluster,) = clusters(config)
    assert (cluster.region, cluster.namespace) == ("my-cluster", "dstack-jobs")
    with_more: Any = parse_backend(BACKEND + CONTEXTS)
    assert [context.name for context in with_more.contexts] == ["my-cluster", "other"]


@pytest.mark.parametrize("text", [FLEET, TASK, CLUSTER, NODES, VOLUME, GATEWAY])
def test_its_configurations_are_accepted(text: str) -> None:
    assert parse(text)


def test_its_fast_network_is_the_contexts() -> None:
    config: Any = parse_backend(BACKEND + CONTEXTS + NETWORK)
    assert config.contexts[-1].gpu_resources == {"rdma/hca_shared_devices_a": 1}
    assert config.contexts[-1].networks == ("ib-0", "ib-1")


@pytest.mark.parametrize("name", ["crusoe", "lambda", "multus"])
def test_its_examples_give_a_job_with_gpus_their_network(name: str) -> None:
    text = (EXAMPLES / f"{name}.yml").read_text()
    assert f"(../examples/kubernetes/{name}.yml)" in GUIDE
    config: Any = parse_backend(text)
    (cluster,) = clusters(config)
    ((device, count),) = cluster.context.gpu_resources.items()
    adapters = {device.replace(".", "_").replace("/", "__"): "8"}
    here = node("n", cpu="64", memory="512Gi", labels=T4, nvidia_com__gpu="8", **adapters)
    assert resources_of(here["status"]["allocatable"]) == ["nvidia.com/gpu"], "no adapter is taken for a GPU"
    (offer,) = offers({"gpu": "T4:8", "cpu": "4", "disk": "10GB.."}, here)
    body = pod(request_for(offer), cluster, "")
    (job,) = body["spec"]["containers"]
    assert job["resources"]["limits"][device] == job["resources"]["requests"][device] == str(count)
    assert job["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    networks = body["metadata"]["annotations"].get("k8s.v1.cni.cncf.io/networks")
    assert networks == ("default/hostdev-net" if name == "multus" else None)


def test_every_example_is_tested() -> None:
    assert sorted(each.stem for each in EXAMPLES.iterdir()) == ["crusoe", "lambda", "multus", "role"]


def test_its_topology_is_the_contexts() -> None:
    config: Any = parse_backend(BACKEND + CONTEXTS + NEAR + RACKS)
    (near,) = config.contexts[-1].pod_affinity
    assert (near.labels, near.topology_key) == ({"app": "dataset-cache"}, ZONE)
    assert (config.contexts[-1].cluster_topology.key, config.contexts[-1].cluster_topology.required) == (
        "example.com/rack",
        True,
    )
    assert config.contexts[0].cluster_topology.key == ZONE and f"same value of `{ZONE}`" in GUIDE


def test_its_gateways_are_the_contexts() -> None:
    plain: Any = parse_backend(BACKEND + CONTEXTS + GATEWAYS)
    assert plain.contexts[-1].gateways.expose == "LoadBalancer"
    balanced: Any = parse_backend(BACKEND + CONTEXTS + BALANCED)
    assert balanced.contexts[-1].gateways.load_balancer_class == "service.k8s.aws/nlb"
    disk = SMALL_CONTAINER.disk
    assert (SMALL_CONTAINER.cpu.count.min, SMALL_CONTAINER.memory.min, disk and disk.size.min) == (1, 1, 2)
    assert "requests 1 CPU, 1 GB of memory and 2 GB of disk" in GUIDE.replace("<!-- = -->", "")
    assert all(f"`{name}`" in GUIDE for name in NAMES)


def test_a_job_gets_what_it_says() -> None:
    resources = yaml.safe_load(TASK)["resources"]
    card = {**T4, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    (offer,) = offers(resources, node("n", cpu="64", memory="512Gi", labels=card, nvidia_com__gpu="8"))
    has = offer.instance.resources
    assert (has.cpus, has.memory_mib, has.disk.size_mib) == (8, 64 * 1024, 50 * 1024)
    assert [gpu.name for gpu in has.gpus] == ["H100"] * 2
    assert offer.backend_data["pod"]["limits"]["cpu"] == 0, "`8..` has no limit"
    disk = ResourcesSpec().disk
    assert disk is not None and disk.size.min == 100 and "the default is\n  `100GB..`" in GUIDE


def test_why_not_reads_as_it_says() -> None:
    card = {**T4, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    full = {"metadata": {"name": "p"}, "status": {}}
    pod = {**full, "spec": {"nodeName": "gpu-1", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    nodes = [
        node("gpu-1", labels=card, nvidia_com__gpu="8"),
        node("gpu-2", labels=card, nvidia_com__gpu="8", unschedulable=True),
        node("cpu-1"),
    ]
    found = search({"gpu": "H100"}, nodes, [pod])
    assert all(" ".join(line.split()) in " ".join(GUIDE.split()) for line in found.lacking), found.lacking


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"Kubernetes {'.'.join(map(str, OLDEST))} or newer" in GUIDE
