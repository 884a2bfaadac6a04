"""What clouds call a GPU, and what people do."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.gpus import GIB, SOLD_WITH, gpu
from chalicelib.domain.gpu_names import vendor_of
from tests.harness.rows import each

# As eleven clouds say it: the name, its memory if it is given apart, and ours.
NAMES = [
    ("A10G", 22_888, "A10G", 24),
    ("RTX PRO Server 6000", 97_887, "RTXPRO6000", 96),
    ("B200", 183_359, "B200", 180),
    ("B300", 275_040, "B300", 288),
    ("L40S", 45_776, "L40S", 48),
    ("T4g", 16_384, "T4G", 16),
    ("H100 (80 GB SXM5)", 0, "H100", 80),
    ("A100 (40 GB SXM4)", 0, "A100", 40),
    ("GH200 (96 GB)", 0, "GH200", 96),
    ("Tesla V100 (16 GB)", 0, "V100", 16),
    ("A100-PCIe-40GB", 0, "A100", 40),
    ("GB200-NVL-186GB", 0, "GB200", 186),
    ("MI355X_288GB", 0, "MI355X", 288),
    ("NVIDIA H100 80GB HBM3", 0, "H100", 80),
    ("NVIDIA H100 NVL", 0, "H100NVL", 94),
    ("NVIDIA GeForce RTX 4090", 0, "RTX4090", 24),
    ("NVIDIA GeForce RTX 4080 SUPER", 16_384, "RTX4080SUPER", 16),
    ("NVIDIA GeForce RTX 4070 Ti SUPER", 16_384, "RTX4070TISUPER", 16),
    ("NVIDIA RTX A6000", 0, "A6000", 48),
    ("NVIDIA RTX 6000 Ada Generation", 0, "RTX6000ADA", 48),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 0, "RTXPRO6000", 96),
    ("AMD Instinct MI300X OAM", 0, "MI300X", 192),
    ("NVIDIA RTX 2000 Ada Generation", 16_384, "RTX2000ADA", 16),
    ("NVIDIA RTX 4000 SFF Ada Generation", 20_480, "RTX4000SFFADA", 20),
    ("RTX A2000", 12_288, "A2000", 12),
    ("InstinctMI50", 32_768, "MI50", 32),
    ("Tesla V100-PCIE-16GB", 0, "V100", 16),
    ("H100 SXM", 81_559, "H100", 80),
    ("RTX 3090 Ti", 24_564, "RTX3090TI", 24),
    ("RTX 6000Ada", 49_140, "RTX6000ADA", 48),
    ("Q RTX 8000", 49_152, "RTX8000", 48),
    ("nvidia-tesla-t4", 0, "T4", 16),
    ("nvidia-h100-mega-80gb", 0, "H100", 80),
    ("nvidia-h200-141gb", 0, "H200", 141),
    ("nvidia-tesla-a100", 40_960, "A100", 40),
    ("nvidia-rtx-pro-6000", 0, "RTXPRO6000", 96),
    ("NVIDIA H100 PCIe", 0, "H100", 80),
    ("A100", 81_251, "A100", 80),
    ("A100", 40_536, "A100", 40),
    ("GH200 144G HBM3e", 146_831, "GH200", 144),
    ("GH200", 97_871, "GH200", 96),
    ("NVIDIA H200", 143_771, "H200", 141),
    ("H200 SXM", 0, "H200", 141),
    ("nvidia-gb200", 0, "GB200", 186),
    ("GeForce RTX 5090", 0, "RTX5090", 32),
    ("AMD Instinct MI210", 0, "MI210", 64),
    ("AMD Instinct MI250X", 0, "MI250X", 128),
    ("MI325X", 0, "MI325X", 256),
    ("MI350X", 0, "MI350X", 288),
    ("L4", 20_480, "L4", 20),
    ("gpu-b200-sxm-a", 0, "B200", 180),
    ("gpu-l40s-d", 0, "L40S", 48),
    ("h100-sxm5-80gb", 0, "H100", 80),
    ("rtxa6000-pcie-48gb", 0, "A6000", 48),
    ("geforcertx4090-pcie-24gb", 0, "RTX4090", 24),
    ("Tesla-T4", 0, "T4", 16),
    ("NVIDIA-A100-SXM4-80GB", 0, "A100", 80),
]


@each(("given", "memory_mib", "name", "gib"), NAMES)
def test_a_card_has_the_name_and_memory_that_people_ask_for(given: str, memory_mib: int, name: str, gib: int) -> None:
    found = gpu(given, memory_mib)
    assert found is not None
    assert (found.name, found.memory_mib, found.vendor) == (name, gib * GIB, vendor_of(name))
    assert found.vendor
    assert vendor_of(name) is not None


def test_a_card_that_isnt_known_keeps_its_name_and_its_makers() -> None:
    found = gpu("Foo X1", 9_000, "foo")
    assert found is not None and (found.name, found.memory_mib, found.vendor) == ("FOOX1", 9 * GIB, "foo")


@pytest.mark.parametrize("given", ["NVIDIA A100", "V100", "Foo X1", "gpu-gh200"])
def test_a_card_of_unknown_memory_isnt_offered(given: str) -> None:
    """Of several sizes none is guessed."""
    assert gpu(given) is None


@pytest.mark.parametrize("given", ["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA A10 vGPU 24GB"])
def test_a_share_of_a_card_is_no_card(given: str) -> None:
    assert gpu(given, 40_960) is None


def test_every_card_of_the_table_is_known_by_its_name() -> None:
    assert [name for name in SOLD_WITH if vendor_of(name) is None] == []
