"""What a server says when it stops: of runs and machines that go on, and nothing of what doesn't."""

from __future__ import annotations

from pathlib import Path

from chalicelib.domain.instances import Claim, InstanceStatus
from chalicelib.runtime.shutdown_message import shutdown_lines
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create
from tests.world import nouns as b

LOCAL = b.offer("host", 0.0, backend="remote", region="")


def claim(run: dict[str, str]) -> Claim:
    return Claim(job_id=f"job-of-{run['id']}", run_id=run["id"], blocks=(0,))


def test_where_nothing_goes_on_nothing_is_said(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    made = create(rig, fleet())
    submit(rig, task("waiting"))
    add_instance(rig, made, status=InstanceStatus.terminated, zone="a")
    add_instance(rig, made, 1, offer=LOCAL)
    add_instance(rig, made, 2)  # not ordered yet
    assert shutdown_lines(rig.world.plane) == []


def test_runs_and_machines_that_go_on(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    made = create(rig, fleet())
    here, there = submit(rig, task("here")), submit(rig, task("there"))
    add_instance(rig, made, 0, claim(here), offer=LOCAL)
    add_instance(rig, made, 1, claim(there), zone="a")
    add_instance(rig, made, 2, zone="a")
    assert shutdown_lines(rig.world.plane) == [
        "2 runs go on without the server: here, there.",
        "To end one, start the server again and type `dstack stop NAME`.",
        "A server that is started with --stop-jobs ends the jobs of this machine when it stops.",
        "2 machines go on, for $3 an hour: pool-1 (vultr), pool-2 (vultr).",
        "To release them, start the server again and type `dstack fleet delete NAME`.",
    ]


def test_those_of_the_simulated_cloud_have_ended(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    add_instance(rig, create(rig, fleet()), 1, claim(submit(rig, task("there"))), zone="a")
    lines = shutdown_lines(rig.world.plane, ended=1, simulated="vultr")
    assert lines == ["1 machine of the simulated cloud ended with the server."]
