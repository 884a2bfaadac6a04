"""Runs that name volumes: plan, apply, and what clients are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instances import Handle
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.planning.placing.claims import assignment_to
from chalicelib.planning.volumes.sites import current_use
from chalicelib.store import nouns
from tests.api.rig import Rig, fleet, submit, task
from tests.world import nouns as b
from tests.world.disks import attachment, volume


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig.at(tmp_path)
    made.ok("P/fleets/apply", {"plan": {"spec": fleet(), "current_resource": None}, "force": False})
    return made


def add(rig: Rig, name: str, **fields: Any) -> Volume:
    """A volume in the project; in the region `fra` unless set."""
    where = {"backend": "vultr", "region": "fra", **fields}
    made = volume(name, version=0, **where).with_(project_id=rig.project.id)
    rig.save(made)
    rig.world.plane.store.commit([nouns.pointer(keys.volume_name(rig.project.id, name), made.id)])
    return made


def mounting(*names: Any, **fields: Any) -> dict[str, Any]:
    mounts = [{"name": name, "path": f"/data{at}"} for at, name in enumerate(names)]
    return task("train", volumes=mounts, **fields)


def plan(rig: Rig, spec: dict[str, Any]) -> Any:
    return rig.ok("P/runs/get_plan", {"run_spec": spec})


def test_offers_are_where_the_volume_is_and_names_are_lists(rig: Rig) -> None:
    add(rig, "data")
    found = plan(rig, mounting("data"))
    (job,) = found["job_plans"]
    assert {offer["region"] for offer in job["offers"]} == {"fra"} and job["offers"]
    assert job["job_spec"]["volumes"] == [{"name": ["data"], "path": "/data0"}]
    assert found["run_spec"]["configuration"]["volumes"] == [{"name": "data", "path": "/data0"}]


def test_one_of_several_regions_is_enough(rig: Rig) -> None:
    add(rig, "near")
    add(rig, "far", region="ewr")
    (job,) = plan(rig, mounting(["near", "far"]))["job_plans"]
    assert {offer["region"] for offer in job["offers"]} == {"fra", "ewr"}


def test_one_of_several_that_is_active_is_enough(rig: Rig) -> None:
    add(rig, "broken", status=VolumeStatus.failed)
    add(rig, "data")
    for names in (["broken", "data"], ["data", "broken"]):
        submit(rig, {**mounting(names), "run_name": names[0]})


def test_a_missing_volume_is_said_at_once(rig: Rig) -> None:
    reply = rig.call("/api/project/main/runs/get_plan", {"run_spec": mounting("nope")})
    assert reply.status == 400
    (entry,) = reply.json["detail"]
    assert entry["code"] == "resource_not_exists" and entry["msg"].startswith("Volume ['nope'] not found")


def test_the_volume_of_a_later_node_is_missed_when_it_is_applied(rig: Rig) -> None:
    add(rig, "data-0")
    spec = mounting("data-${{ dstack.node_rank }}", nodes=2)
    names = [job["job_spec"]["volumes"][0]["name"] for job in plan(rig, spec)["job_plans"]]
    assert names == [["data-0"], ["data-1"]]
    assert "Volume ['data-1'] not found" in rig.refused("P/runs/apply", {"plan": {"run_spec": spec}})
    add(rig, "data-1")
    applied = submit(rig, spec)
    assert applied["run_spec"]["configuration"]["volumes"][0]["name"] == "data-${{ dstack.node_rank }}"
    assert applied["jobs"][1]["job_spec"]["volumes"][0]["name"] == ["data-1"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("data", "far"), "no machine can have them all: data in vultr in fra, far in vultr in ewr"),
        (("broken",), "The volume broken is failed: no quota. Runs need it to be active."),
    ],
)
def test_what_cant_start_is_planned_without_offers_and_not_applied(rig: Rig, names: tuple[str, ...], text: str) -> None:
    add(rig, "data")
    add(rig, "far", region="ewr")
    add(rig, "broken", status=VolumeStatus.failed, message="no quota")
    spec = mounting(*names)
    assert all(job["offers"] == [] for job in plan(rig, spec)["job_plans"])
    assert text in rig.refused("P/runs/apply", {"plan": {"run_spec": spec}})


@pytest.mark.parametrize(
    ("names", "fields", "text"),
    [
        (("data", "data"), {}, "The volume data is mounted twice. Mount it once, and link to its folders."),
        (("data",), {"nodes": 2}, "one machine at a time, and 2 nodes name it. Give each node its own: `data-${{"),
        (("wide",), {"nodes": 2}, "The volume wide can be used by one machine at a time, and 2 nodes name it."),
    ],
)
def test_what_can_never_start_is_neither_planned_nor_applied(
    rig: Rig, names: tuple[str, ...], fields: dict[str, Any], text: str
) -> None:
    add(rig, "data")
    add(rig, "wide", multi_attach=True)
    spec = mounting(*names, **fields)
    assert text in rig.refused("P/runs/get_plan", {"run_spec": spec})
    assert text in rig.refused("P/runs/apply", {"plan": {"run_spec": spec}})


def test_one_disk_is_not_for_several_replicas(rig: Rig) -> None:
    add(rig, "data")
    mounts = [{"name": "data", "path": "/data"}]
    config = {"type": "service", "port": 80, "commands": ["serve"], "replicas": 2, "volumes": mounts}
    text = "The volume data can be used by one machine at a time, and 2 replicas name it. Run one replica"
    assert text in rig.refused("P/runs/get_plan", {"run_spec": {"configuration": config}})
    assert plan(rig, {"configuration": {**config, "replicas": 1}})["job_plans"][0]["offers"]


def test_nor_for_as_many_as_there_may_be(rig: Rig) -> None:
    """It would start, and never have a second one."""
    add(rig, "data")
    mounts = [{"name": "data", "path": "/data"}]
    config = {"type": "service", "port": 80, "commands": ["serve"], "volumes": mounts}
    config |= {"replicas": "0..3", "scaling": {"metric": "rps", "target": 1}}
    text = "and 3 replicas name it. Run one replica"
    assert text in rig.refused("P/runs/get_plan", {"run_spec": {"configuration": config}})
    assert text in rig.refused("P/runs/apply", {"plan": {"run_spec": {"configuration": config}}})
    missing = {**config, "replicas": "0..1", "volumes": [{"name": "nowhere", "path": "/data"}]}
    assert "nowhere" in rig.refused("P/runs/apply", {"plan": {"run_spec": {"configuration": missing}}})


def test_a_service_with_a_disk_takes_no_new_version_beside_the_old_one(rig: Rig) -> None:
    """It would wait for the disk that the old one never leaves."""
    add(rig, "data")
    config = {"type": "service", "name": "db", "port": 80, "volumes": [{"name": "data", "path": "/data"}]}
    old, new = ({"configuration": {**config, "commands": [command]}} for command in ("serve", "serve v2"))
    submit(rig, old)
    assert rig.ok("P/runs/get_plan", {"run_spec": new})["action"] == "create"
    error = rig.refused("P/runs/apply", {"plan": {"run_spec": new}, "force": True})
    assert "can't be changed while it runs: commands, its volume data can be used by one machine at a time" in error
    same = {"configuration": {**old["configuration"], "priority": 7}}
    assert rig.ok("P/runs/get_plan", {"run_spec": same})["action"] == "update"


def test_two_zones_are_accepted_without_offers(rig: Rig) -> None:
    add(rig, "a", zone="fra-a")
    add(rig, "c", zone="fra-c")
    found = plan(rig, mounting("a", "c"))
    assert found["job_plans"][0]["offers"] == []
    assert {note["text"] for note in found["notes"]} >= {
        "can't have its volumes: the volumes are in different places, so no machine can have all of them"
    }
    submit(rig, mounting("a", "c"))


def test_a_plan_says_for_whom_it_would_wait(rig: Rig) -> None:
    holder, machine = b.job(b.run("other")), b.machine()
    add(rig, "data", attachments=(attachment(holder, machine),))
    notes = {note["subject"]: note["text"] for note in plan(rig, mounting("data"))["notes"]}
    assert notes["volume `data`"] == "isn't free, which run `other` uses; the run would wait for it"


def test_a_waiting_job_says_for_whom_wherever_clients_look(rig: Rig) -> None:
    disk = add(rig, "data", attachments=(attachment(b.job(b.run("other")), b.machine()),))
    run_id = submit(rig, mounting("data"))["id"]
    job = next(noun for noun in rig.world.plane.read.run_and_jobs(run_id)[1] if isinstance(noun, Job))
    rig.save(job.with_(message=f"waiting for volume `data`, {current_use(disk)}"))
    shown = rig.ok("P/runs/get", {"run_name": "train"})
    (submission,) = shown["jobs"][0]["job_submissions"]
    assert shown["latest_job_submission"] == submission and submission["status"] == "submitted"
    assert submission["error"] == submission["termination_reason_message"]
    assert submission["error"] == "waiting for volume `data`, which run `other` uses"


def test_a_job_shows_its_volumes(rig: Rig) -> None:
    disk = add(rig, "data")
    run_id = submit(rig, mounting("data"))["id"]
    job = next(noun for noun in rig.world.plane.read.run_and_jobs(run_id)[1] if isinstance(noun, Job))
    machine = b.machine(handles=(Handle(kind="vm", id="i-1", data={"zone": "fra-a"}),))
    mounted = (Mounted(id=disk.id, name="data", path="/data0"),)
    rig.save(job.with_(status=JobStatus.provisioning, assignment=assignment_to(machine, machine.offer, b.NOW, mounted)))
    (shown,) = rig.ok("P/runs/get", {"run_name": "train"})["jobs"][0]["job_submissions"]
    assert shown["job_runtime_data"]["volume_names"] == ["data"]
    assert shown["job_provisioning_data"]["availability_zone"] == "fra-a"
