"""Doors' view of a service: its configuration, and the replicas that may get requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.serving import Served, ServedModel
from chalicelib.domain.specs.services import RateLimit
from chalicelib.domain.tenants import ProjectRole, hash_token
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.services import doors
from tests.api.rig import ADMIN, Rig, submit, task
from tests.world import nouns as b

MODEL = {"type": "chat", "name": "my-org/tiny", "format": "openai"}
ROUTED = [
    {"name": "a", "replicas": 1, "commands": ["a"]},
    {"name": "r", "replicas": 1, "commands": ["r"], "router": {"type": "sglang"}},
]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.at(tmp_path)


def begun(rig: Rig, **fields: Any) -> tuple[Run, list[Job]]:
    configuration = {
        "type": "service",
        "port": 8000,
        **({} if "groups" in fields else {"commands": ["serve"]}),
        **fields,
    }
    run_id = submit(rig, {"run_name": "chat", "configuration": configuration})["id"]
    store = rig.world.plane.store
    run = nouns.find(store, Run, keys.run(run_id))
    assert run is not None
    return run, [nouns.read(Job, record) for record in all_of(store, "main", f"run/{run_id}", low="job/", high="job0")]


def served(rig: Rig, run: Run) -> Served:
    found = doors.served(rig.world.plane, run.id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"auth": False}, {"auth": False}),
        ({"strip_prefix": False}, {"strip_prefix": False}),
        ({"rate_limits": [{"rps": 2, "prefix": "/v1"}]}, {"rate_limits": (RateLimit(rps=2, prefix="/v1"),)}),
        ({"model": "my-org/tiny"}, {"model": ServedModel(name="my-org/tiny", prefix="/v1")}),
        ({"model": {**MODEL, "prefix": "/v2"}}, {"model": ServedModel(name="my-org/tiny", prefix="/v2")}),
        ({"groups": ROUTED}, {"routed": True}),
        ({"replicas": 0}, {"off": True}),
        ({"replicas": "0..1", "scaling": {"metric": "rps", "target": 1}}, {"off": False}),
        (
            {},
            {
                "auth": True,
                "strip_prefix": True,
                "rate_limits": (),
                "model": None,
                "port": 8000,
                "off": False,
                "routed": False,
            },
        ),
    ],
    ids=["auth", "strip_prefix", "rate_limits", "model", "prefix", "routed", "off", "asleep", "nothing"],
)
def test_doors_are_told_what_the_configuration_says(rig: Rig, fields: dict[str, Any], want: dict[str, Any]) -> None:
    found = served(rig, begun(rig, **fields)[0])
    assert {name: getattr(found, name) for name in want} == want


def running(job: Job, **changes: Any) -> Job:
    offer = b.offer("m1", 1.0)
    names = {"instance_name": "i", "fleet_id": "f", "fleet_name": "f"}
    place = Assignment(instance_id=f"i{job.replica_num}", offer=offer, assigned_at=b.NOW, **names)
    return job.with_(status=JobStatus.running, assignment=place, address="10.0.0.7", **changes)


def test_only_running_replicas_are_named_with_what_they_may_get(rig: Rig) -> None:
    run, jobs = begun(rig, replicas=4)
    ready = running(jobs[1], ready_at=b.NOW)
    rig.save(running(jobs[0]), ready, running(jobs[2], ready_at=b.NOW, draining_at=b.NOW))
    rig.save(*(b.host(num).with_(id=f"i{num}") for num in range(3)))
    found = served(rig, run).replicas
    assert [(each.job_id, each.ready, each.draining) for each in found] == [
        (jobs[0].id, False, False),
        (jobs[1].id, True, False),
        (jobs[2].id, True, True),
    ]
    assert {(each.address, each.port) for each in found} == {("10.0.0.7", 8000)}
    assert [each.instance_id for each in found] == ["i0", "i1", "i2"]


def test_a_replica_of_the_version_before_keeps_its_port(rig: Rig) -> None:
    run, jobs = begun(rig)
    old = nouns.find(rig.world.plane.store, RunBody, keys.run_body(run.id, 0))
    assert old is not None
    spec = {"run_name": "chat", "configuration": {"type": "service", "port": 9000, "commands": ["serve"]}}
    submit(rig, spec)
    rig.save(running(jobs[0], ready_at=b.NOW))
    found = served(rig, run)
    assert (found.port, [each.port for each in found.replicas]) == (9000, [8000])


def test_until_a_router_is_ready_replicas_without_one_are_asked(rig: Rig) -> None:
    """As long as they are of the version without one."""
    parts = [{"name": name, "replicas": 1, "commands": [name]} for name in ("a", "r")]
    _, jobs = begun(rig, groups=parts)
    routed = [parts[0], {**parts[1], "router": {"type": "sglang"}}]
    config = {"type": "service", "port": 8000, "groups": routed}
    made = submit(rig, {"run_name": "chat", "configuration": config})
    run = nouns.find(rig.world.plane.store, Run, keys.run(made["id"]))
    assert run is not None and run.deployment_num == 1
    rig.save(*(running(job, ready_at=b.NOW) for job in jobs))
    assert [each.group for each in served(rig, run).replicas] == ["a", "r"]
    rig.save(*(running(job, ready_at=b.NOW, deployment_num=1).with_(version=job.version + 1) for job in jobs))
    assert [each.group for each in served(rig, run).replicas] == ["r"]


def test_what_isnt_a_live_service_is_told_to_nobody(rig: Rig) -> None:
    plane = rig.world.plane
    run, _ = begun(rig)
    assert doors.named(plane, "main", "chat") == served(rig, run)
    assert doors.with_models(plane, "main") == []
    submit(rig, task("hello"))
    assert doors.named(plane, "main", "hello") is None
    assert doors.named(plane, "main", "nobody") is None and doors.named(plane, "nowhere", "chat") is None
    rig.ok("P/runs/stop", {"runs_names": ["chat"], "abort": False})
    assert doors.named(plane, "main", "chat") is None


def test_members_and_global_admins_are_let_in_for_as_long_as_they_are_active(rig: Rig) -> None:
    side = rig.another_project("side")
    ann, bob = rig.user("ann", ProjectRole.user), rig.user("bob", ProjectRole.user, side)

    def let_in(token: str) -> tuple[bool, bool]:
        """By the project's name, and by its id."""
        return doors.member(rig.world.plane, token, "main").allowed, by_id(token, rig.project.id)

    def by_id(token: str, project_id: str) -> bool:
        return doors.member_by_hash(rig.world.plane, "", hash_token(token), project_id, "").allowed

    assert [let_in(token) for token in (ann, ADMIN)] == [(True, True)] * 2
    assert [let_in(token) for token in (bob, "nobody's")] == [(False, False)] * 2
    assert not doors.member(rig.world.plane, ann, "nowhere").allowed and not by_id(ann, side.id)
    rig.deactivate("ann")
    assert let_in(ann) == (False, False)
