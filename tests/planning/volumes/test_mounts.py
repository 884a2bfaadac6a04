"""What jobs mount: paths, names by rank, and machines that have folders of their own."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import Instance
from chalicelib.planning.jobs.jobs import agent_task, by_group, job_specs
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.plan_offers import plan_offers
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.runs.field_support import refusals
from chalicelib.planning.volumes.mounts import first_folder
from tests.world import nouns as b

FOLDER = {"instance_path": "/nfs", "path": "/data"}
OPTIONAL = {**FOLDER, "optional": True}
POD = b.offer("pod", 0.5, instance_runtime="runner")
HOST = b.offer("host", 2.0)


def bought_for(*mounts: Any, offers: tuple[Any, ...] = (POD, HOST)) -> str:
    """The type of the machine that is bought for a job with these mounts; else why there is none."""
    fleets = (b.view(b.fleet("cloud"), nodes="0..2"),)
    plan = decide_queue(b.waiting(b.queued("train", b.run_spec(volumes=list(mounts))), fleets=fleets, offers=offers))
    saved = [noun for step in plan.steps for noun in step.saves]
    return next((n.offer.instance.name for n in saved if isinstance(n, Instance)), plan.steps[0].saves[0].message)  # type: ignore[attr-defined]


def test_a_folder_needs_a_machine_that_has_some() -> None:
    assert bought_for() == "pod"
    assert bought_for(FOLDER) == "host"
    assert bought_for(OPTIONAL) == "pod", "it does without"
    assert bought_for(FOLDER, offers=(POD,)) == (
        "nowhere to run: fleet `cloud` can grow, but only with machines that have no folders of their own to mount (1 "
        "would match) (mark the host's folder in `volumes` as `optional: true`, or mount a volume instead)"
    )


@pytest.mark.parametrize("blocks", [1, 4])
def test_an_existing_machine_without_folders_isnt_taken(blocks: int) -> None:
    pod = b.machine(offer=POD.with_(total_blocks=blocks, blocks=blocks), total_blocks=blocks)
    fleets = (b.view(b.fleet("cloud"), pod, nodes="0..1"),)
    spec = b.run_spec(volumes=[FOLDER], resources={"cpu": "1..", "memory": "1GB.."})
    offers, total, notes = plan_offers(b.requirements(spec), fleets, OfferBook([]), 10)
    assert (offers, total) == ([], 0) and notes
    fixed = (b.view(b.fleet("cloud"), pod, ssh_config={"user": "u", "hosts": ["10.0.0.1"]}),)
    (note,) = plan_offers(b.requirements(spec), fixed, OfferBook([]), 10)[2]
    assert "is a container, which ends with the job" in note.text


def test_the_agent_gets_folders_where_there_are_some() -> None:
    spec = b.job_spec(b.run_spec(volumes=["/nfs:/data", OPTIONAL | {"path": "/more"}]))
    both = [{"kind": "folder", "source": "/nfs", "path": at} for at in ("/data", "/more")]
    assert agent_task(b.job(b.run()), spec, b.host(), "main")["volumes"] == both
    assert agent_task(b.job(b.run()), spec, b.machine(offer=POD), "main")["volumes"] == []


def test_each_node_has_the_volume_of_its_rank() -> None:
    names = ["data-${{ dstack.node_rank }}", "old-${{dstack.job_num}}"]
    spec = b.run_spec(nodes=3, volumes=[{"name": names, "path": "/a"}, "/nfs:/b"])
    specs = job_specs(spec, images=b.Images())
    assert [each.volumes[0].name for each in specs] == [(f"data-{n}", f"old-{n}") for n in range(3)]  # type: ignore[union-attr]
    assert [each.node_group_job_index for each in specs] == [0, 1, 2]
    assert [len(group) for group in by_group(specs)] == [1, 1, 1], "each has a text of its own"
    same = job_specs(b.run_spec(nodes=3, volumes=["data:/a"]), images=b.Images())
    assert [len(group) for group in by_group(same)] == [3]
    assert same[2].model_dump()["volumes"] == ({"name": ("data",), "path": "/a"},)


@pytest.mark.parametrize(
    ("mounts", "where", "text"),
    [
        (["/a:/x", "/b:/x"], "volumes.1.path", "something else is mounted at `/x` already"),
        (["/a:/"], "volumes.0.path", "nothing can be mounted over the whole file system of a job"),
    ],
)
def test_what_cant_be_mounted_is_refused_where_it_is_written(mounts: list[Any], where: str, text: str) -> None:
    found = {problem.path: problem for problem in refusals(b.run_spec(volumes=mounts))}
    assert found[f"configuration.{where}"].message == text and found[f"configuration.{where}"].hint


def test_a_replica_has_the_mounts_of_its_service_as_if_it_were_the_first_node() -> None:
    written = [{"name": "data-${{ dstack.node_rank }}", "path": "/a"}, "/nfs:/b"]
    service = {"type": "service", "port": 80, "commands": ["serve"], "volumes": written}
    (spec,) = job_specs(b.run_spec(**service), images=b.Images())
    assert spec.model_dump()["volumes"] == (
        {"name": ("data-0",), "path": "/a"},
        {"instance_path": "/nfs", "path": "/b", "optional": False},
    )


def test_the_first_folder_of_a_host_is_named_by_its_place() -> None:
    def first(*mounts: Any) -> str:
        return first_folder(b.run_spec(volumes=[*mounts]).configuration.volumes)

    assert first("data:/a", "/nfs:/b", "/nfs:/c") == "configuration.volumes.1"
    assert first("data:/a") == first() == ""
