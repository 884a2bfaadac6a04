"""The examples are planned: the server accepts every file, and finds a machine that fits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from chalicelib.configuration.parse import parse
from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import Gpu
from chalicelib.store import nouns
from examples.clusters.all_reduce import bus_bandwidth
from tests.api.rig import Rig
from tests.api.test_nodes import cluster
from tests.api.uploads import multipart, tar, upload
from tests.world import nouns as b

EXAMPLES = Path(__file__).parents[2] / "examples" / "clusters"


def plan(rig: Rig, name: str) -> Any:
    written = parse((EXAMPLES / f"{name}.dstack.yml").read_text())
    configuration = written.model_dump(mode="json")
    body = multipart(tar(("all_reduce.py", (EXAMPLES / "all_reduce.py").read_bytes())))
    uploaded = upload(rig, "/api/files/upload_archive", body).json["id"]
    archives = [{"id": uploaded, "path": file["path"]} for file in configuration["files"]]
    return rig.ok("P/runs/get_plan", {"run_spec": {"configuration": configuration, "file_archives": archives}})


@pytest.mark.parametrize(("name", "vendor", "gpu"), [("nccl", "nvidia", "H100"), ("rccl", "amd", "MI300X")])
def test_the_bandwidth_of_a_cluster_is_measured_on_all_its_gpus(rig: Rig, name: str, vendor: str, gpu: str) -> None:
    has = b.resources(cpus=64, gb=512).with_(gpus=(Gpu(name=gpu, memory_mib=81_920, vendor=vendor),) * 8)
    for host in cluster(rig, 2):
        known = nouns.find(rig.world.plane.store, Instance, keys.instance(host.id))
        assert known is not None
        unit = known.offer.instance.with_(resources=has)
        rig.save(known.with_(offer=known.offer.with_(instance=unit)))
    jobs = plan(rig, name)["job_plans"]
    assert [len(job["offers"]) for job in jobs] == [2, 2]
    command = jobs[1]["job_spec"]["commands"][-1]
    assert set(re.findall(r"\$(\w+)", command)) == {
        "DSTACK_NODES_NUM", "DSTACK_NODE_RANK", "DSTACK_GPUS_PER_NODE", "DSTACK_MASTER_NODE_IP",
    }  # fmt: skip
    other = {"nccl": "rccl", "rccl": "nccl"}[name]
    assert not any(job["offers"] for job in plan(rig, other)["job_plans"])


def test_the_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert bus_bandwidth(10**9, 1.0, ranks=2) == 1.0
    assert bus_bandwidth(10**9, 0.5, ranks=8) == 3.5
