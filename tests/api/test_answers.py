"""What the types of answers don't say: dates have a zone, and a private key is never sent back."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import MINUTE
from chalicelib.domain.jobs import JobStatus, PullProgress
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create
from tests.api.test_runs import finish, job_of, placed


def a_run(rig: Rig) -> Any:
    made = submit(rig, task())
    now = rig.world.clock.now()
    rig.save(placed(job_of(rig, made["id"]), now).with_(status=JobStatus.pulling, pull=PullProgress(total_bytes=5)))
    rig.world.clock.pass_(MINUTE / 1e6)
    return made


def a_fleet(rig: Rig) -> Any:
    made = create(rig, fleet())
    add_instance(rig, made)
    return made


def test_a_finished_run_says_how_it_ended(rig: Rig) -> None:
    made = a_run(rig)
    finish(rig, made["id"])
    answer = rig.ok("P/runs/get", {"run_name": "hello"})
    assert answer["latest_job_submission"]["status_message"] == "exited (0)"


def test_dates_have_a_zone(rig: Rig) -> None:
    run = a_run(rig)
    dates = [
        run["submitted_at"],
        run["last_processed_at"],
        run["latest_job_submission"]["submitted_at"],
        a_fleet(rig)["created_at"],
    ]
    assert all(date.endswith("+00:00") for date in dates)


def test_a_private_key_is_never_sent_back(rig: Rig) -> None:
    spec = fleet(
        "hosts", ssh_config={"user": "u", "ssh_key": {"public": "p", "private": "TOP SECRET"}, "hosts": ["10.0.0.1"]}
    )
    del spec["configuration"]["nodes"]
    for path, body in (("get_plan", {"spec": spec}), ("apply", {"plan": {"spec": spec}, "force": False})):
        reply = rig.call(f"/api/project/main/fleets/{path}", body)
        assert reply.status in (200, 400) and b"TOP SECRET" not in reply.body
