"""Under which name a card is requested that a machine has."""

from __future__ import annotations

import pytest

from chalicelib.domain.gpu_names import COMPUTE_CAPABILITY, sold_as
from chalicelib.domain.instances import HostGpu
from chalicelib.planning.machines.instance import resources_of
from chalicelib.planning.matching.fitting import misfits
from tests.planning.matching.test_offer_book import needs
from tests.world import nouns as b

SOLD = {
    "H100 80GB HBM3": "H100",
    "H100 PCIe": "H100",
    "H100 NVL": "H100NVL",
    "NVIDIA H200": "H200",
    "GH200 480GB": "GH200",
    "A100-SXM4-80GB": "A100",
    "A100 80GB PCIe": "A100",
    "Tesla V100-SXM2-16GB": "V100",
    "Tesla T4": "T4",
    "A10G": "A10G",
    "RTX A6000": "A6000",
    "Quadro RTX 6000": "RTX6000",
    "RTX 6000 Ada Generation": "RTX6000Ada",
    "RTX 2000 Ada Generation": "RTX2000Ada",
    "RTX 4000 SFF Ada Generation": "RTX4000SFFAda",
    "RTX A2000": "A2000",
    "Instinct MI50": "MI50",
    "RTX PRO 6000 Blackwell Server Edition": "RTXPRO6000",
    "GeForce RTX 3080 Ti": "RTX3080Ti",
    "GeForce RTX 4090": "RTX4090",
    "GeForce RTX 4070 Ti SUPER": "RTX4070TiSUPER",
    "MI300X-O": "MI300X",
    "AMD INSTINCT MI250 (MCM) OAM AC MBA": "MI250",
    "Gaudi2": "Gaudi2",
    "n300": "n300",
}
UNKNOWN_CARDS = (
    "GeForce RTX 4090 Laptop GPU",
    "T400 4GB",
    "X1",
    "",
)


@pytest.mark.parametrize(("reported", "name"), SOLD.items())
def test_a_card_is_requested_by_the_name_it_is_sold_under(reported: str, name: str) -> None:
    assert sold_as(reported) == name
    assert sold_as(name) == name


@pytest.mark.parametrize("reported", UNKNOWN_CARDS)
def test_a_card_that_isnt_known_keeps_what_its_tool_says(reported: str) -> None:
    assert sold_as(reported) == reported


def test_a_host_is_found_by_the_name_its_card_is_sold_under() -> None:
    seen = HostGpu(name="H100 80GB HBM3", memory_mib=81_559, vendor="nvidia")
    host = resources_of(b.host_facts(gpus=(seen,)))
    wanted = {"name": "H100", "memory": "80GB", "compute_capability": "9.0"}
    assert not list(misfits(needs(gpu=wanted), host, provisioned=False))
    assert list(misfits(needs(gpu="H100NVL"), host, provisioned=False))


PUBLISHED = {  # by NVIDIA, of each chip a few cards
    (3, 7): "k80",
    (5, 2): "m60",
    (6, 0): "p100",
    (6, 1): "p4 p40",
    (7, 0): "v100",
    (7, 5): "t4 t4g rtx6000 rtx8000 rtx2060 rtx2080ti",
    (8, 0): "a100 a30",
    (8, 6): "a2 a10 a10g a16 a40 a4000 a6000 rtx3060 rtx3080ti rtx3090 rtx3090ti",
    (8, 9): "l4 l40 l40s rtx4000ada rtx6000ada rtx4060 rtx4090",
    (9, 0): "h100 h100nvl h200 h200nvl gh200",
    (10, 0): "b100 b200 gb200",
    (10, 3): "b300 gb300",
    (12, 0): "rtx5060 rtx5090 rtxpro6000",
    (12, 1): "gb10",
}


def test_a_card_has_the_compute_capability_that_its_maker_publishes() -> None:
    for capability, names in PUBLISHED.items():
        assert {COMPUTE_CAPABILITY[name] for name in names.split()} == {capability}
    assert set(COMPUTE_CAPABILITY.values()) == set(PUBLISHED)
