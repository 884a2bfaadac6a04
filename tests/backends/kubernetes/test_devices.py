"""Which devices a node has, by its resources and labels."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from chalicelib.backends.kubernetes.config import KubernetesAccelerator
from chalicelib.backends.kubernetes.devices import device, resources_of

PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"


def nvidia(product: str, memory: int, **more: str) -> dict[str, str]:
    return {PRODUCT: product, MEMORY: str(memory), **{f"nvidia.com/gpu.{key}": text for key, text in more.items()}}


WHOLE: list[tuple[str, Mapping[str, str], str, int]] = [
    ("nvidia.com/gpu", nvidia("Tesla-T4", 15360), "T4", 16),
    ("nvidia.com/gpu", nvidia("NVIDIA-H100-80GB-HBM3", 81559), "H100", 80),
    ("nvidia.com/gpu", nvidia("A100-SXM4-40GB", 40960), "A100", 40),
    ("nvidia.com/gpu", nvidia("NVIDIA-A100-SXM4-80GB", 81920), "A100", 80),
    ("nvidia.com/gpu", nvidia("NVIDIA-A10G", 23028, replicas="1"), "A10G", 24),
    ("nvidia.com/gpu", nvidia("NVIDIA-RTX-A6000", 49140), "A6000", 48),
    ("nvidia.com/gpu", nvidia("Frobnicator-9", 10240), "FROBNICATOR9", 10),
    ("nvidia.com/gpu", {"cloud.google.com/gke-accelerator": "nvidia-l4"}, "L4", 24),
    ("nvidia.com/gpu", {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "A100", 40),
    ("nvidia.com/gpu", {"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}, "A100", 80),
    ("nvidia.com/gpu", {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"}, "T4", 16),
    ("amd.com/gpu", {"beta.amd.com/gpu.device-id.74a1": "8"}, "MI300X", 192),
    ("amd.com/gpu", {"amd.com/gpu.device-id": "74a5"}, "MI325X", 256),
    (
        "amd.com/gpu",
        {"amd.com/gpu.device-id": "74a5", "amd.com/gpu.compute-memory-partition": "spx_nps1"},
        "MI325X",
        256,
    ),
    (
        "amd.com/gpu",
        {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"},
        "MI300X",
        192,
    ),
    ("google.com/tpu", {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}, "v6e", 32),
]


@pytest.mark.parametrize(("resource", "labels", "name", "gib"), WHOLE)
def test_a_card_is_called_as_users_call_it(resource: str, labels: Mapping[str, str], name: str, gib: int) -> None:
    found = device(resource, labels)
    assert found is not None and not found.share
    assert (found.gpu.name, found.gpu.memory_mib) == (name, gib * 1024)
    assert found.gpu.vendor == resource.partition(".")[0]
    for key, operator, values in found.where:
        assert labels[key] in values if operator == "In" else key in labels


def test_a_slice_isnt_offered_as_the_card() -> None:
    single = nvidia("A100-SXM4-40GB-MIG-1g.5gb", 4864, replicas="1")
    found = device("nvidia.com/gpu", single)
    assert found is not None and found.share
    assert (found.gpu.name, found.gpu.memory_mib) == ("A100-1g.5gb", 5 * 1024)
    mixed = nvidia("NVIDIA-H100-80GB-HBM3", 81559)
    for resource, name, gib in (("mig-3g.40gb", "H100-3g.40gb", 40), ("mig-1g.10gb.me", "H100-1g.10gb.me", 10)):
        found = device(f"nvidia.com/{resource}", mixed)
        assert found is not None and found.share
        assert (found.gpu.name, found.gpu.memory_mib) == (name, gib * 1024)
    whole = device("nvidia.com/gpu", mixed)
    assert whole is not None and not whole.share, "the cards that aren't sliced are whole"


@pytest.mark.parametrize(
    ("resource", "labels"),
    [
        ("nvidia.com/gpu", nvidia("Tesla-T4-SHARED", 15360, replicas="4", **{"sharing-strategy": "time-slicing"})),
        ("nvidia.com/gpu", nvidia("Tesla-T4", 15360, replicas="4", **{"sharing-strategy": "mps"})),
        ("nvidia.com/gpu.shared", nvidia("Tesla-T4", 15360, replicas="4")),
    ],
)
def test_a_card_that_several_share_isnt_offered_as_one(resource: str, labels: Mapping[str, str]) -> None:
    found = device(resource, labels)
    assert found is not None and found.share
    assert (found.gpu.name, found.gpu.memory_mib) == ("T4-SHARED", 4 * 1024)


def test_a_slice_that_several_share_is_both() -> None:
    labels = nvidia("A100-SXM4-40GB-MIG-1g.5gb-SHARED", 4864, replicas="2", **{"sharing-strategy": "time-slicing"})
    found = device("nvidia.com/gpu", labels)
    assert found is not None and found.share
    assert (found.gpu.name, found.gpu.memory_mib) == ("A100-1g.5gb-SHARED", 2560)


@pytest.mark.parametrize(
    ("resource", "labels"),
    [
        ("nvidia.com/gpu", {}),
        ("nvidia.com/gpu", {PRODUCT: "Frobnicator-9"}),
        ("amd.com/gpu", {"beta.amd.com/gpu.device-id.74a1": "4", "beta.amd.com/gpu.device-id.740f": "4"}),
        (
            "amd.com/gpu",
            {"beta.amd.com/gpu.device-id.74a1": "64", "beta.amd.com/gpu.compute-memory-partition.cpx_nps4": "64"},
        ),
        ("amd.com/cpx_nps4", {"beta.amd.com/gpu.device-id.74a1": "8"}),
        ("habana.ai/gaudi", {}),
        ("google.com/tpu", {}),
    ],
)
def test_what_no_label_describes_isnt_guessed(resource: str, labels: Mapping[str, str]) -> None:
    assert device(resource, labels) is None


def test_an_admin_describes_what_labels_dont() -> None:
    written = {"resource": "habana.ai/gaudi", "name": "Gaudi2", "memory": "96GB", "vendor": "intel"}
    gaudi = KubernetesAccelerator.model_validate({**written, "node_selector": {"pool": "g2"}})
    assert device("habana.ai/gaudi", {"pool": "other"}, [gaudi]) is None
    found = device("habana.ai/gaudi", {"pool": "g2"}, [gaudi])
    assert found is not None and (found.gpu.name, found.gpu.memory_mib, found.gpu.vendor) == ("Gaudi2", 98304, "intel")
    assert found.where == (("pool", "In", ("g2",)),) and found.taint == "habana.ai/gaudi"


def test_devices_are_told_from_other_resources() -> None:
    names = ("cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/hostdev", "amd.com/gpu", "rdma/ib")
    assert resources_of(dict.fromkeys(names, 1)) == ["amd.com/gpu", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]
