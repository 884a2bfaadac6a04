"""The start of a task on two nodes, as the deployed state machine drives it: to its end, and undone."""

from __future__ import annotations

from typing import Any

from tests.e2e.aws.deployment import STAGE
from tests.e2e.aws.journey import Journey
from tests.harness.server import until
from tests.scenarios.texts import FOLDER, check

MACHINE = "start_cluster"
STAGES = ["reserve", "master", "rest", "barrier", "publish", "release"]
SLOW = '{"boot": 3600}'  # the machines are there, and don't come up

FLEET = "type: fleet\nname: slow\nnodes: 0..2\nplacement: cluster\n"
LATE = "type: task\nname: late\nnodes: 2\ncommands: [echo never]\n"


def cluster(trip: Journey) -> None:
    """Two nodes start, as the scenario has it: an execution makes every stage, in order, and succeeds."""
    stage = trip.at("nodes")
    check(FOLDER / "nodes.txt", stage)
    started = stage.ask("runs/get", {"run_name": "sum"})["id"]
    execution = until("the execution to end", lambda: ended(trip, started), every=0.5)
    assert (execution["status"], entered(trip, execution)) == ("SUCCEEDED", STAGES)
    assert len(executions(trip)) == 1  # a task that no cluster has room for starts none
    trip.clear(stage)


def undone(trip: Journey) -> None:
    """A task on two nodes is stopped before its machines are up: its execution hears of it, undoes and fails."""
    stage = trip.at("undone")
    stage.behave(SLOW)
    (stage.home / "fleet.dstack.yml").write_text(FLEET)
    (stage.home / "late.dstack.yml").write_text(LATE)
    for command in (["apply", "-y", "-f", "fleet.dstack.yml"], ["apply", "-y", "-d", "-f", "late.dstack.yml"]):
        output, status = stage.dstack(command)
        assert status == 0, output
    started = stage.ask("runs/get", {"run_name": "late"})["id"]
    until("both nodes to be waited for", lambda: "barrier" in entered(trip, *of(trip, started)), every=0.5)
    output, status = stage.dstack(["stop", "-y", "late"])
    assert status == 0, output
    execution = until("the execution to end", lambda: ended(trip, started), every=0.5)
    assert execution["status"] == "FAILED"
    assert entered(trip, execution) == [*STAGES[: STAGES.index("barrier") + 1], "undo reserve"]
    stage.until("the run to end", lambda: stage.ask("runs/get", {"run_name": "late"})["status"] == "terminated")
    (fleet,) = stage.ask("fleets/list", {})
    assert all(instance["busy_blocks"] == 0 for instance in fleet["instances"])
    trip.clear(stage)


def executions(trip: Journey, machine: str = MACHINE) -> list[dict[str, Any]]:
    client = trip.one.client("stepfunctions")
    machines = {one["name"]: one["stateMachineArn"] for one in client.list_state_machines()["stateMachines"]}
    return list(client.list_executions(stateMachineArn=machines[f"dstack-{STAGE}-{machine}"])["executions"])


def of(trip: Journey, run_id: str) -> list[dict[str, Any]]:
    """The executions of that run's start: none yet, or one."""
    return [one for one in executions(trip) if one["name"].startswith(run_id)]


def ended(trip: Journey, run_id: str) -> dict[str, Any] | None:
    (execution,) = of(trip, run_id)
    return None if execution["status"] == "RUNNING" else execution


def entered(trip: Journey, execution: dict[str, Any] | None = None) -> list[str]:
    """The tasks whose states it has entered, in order."""
    if execution is None:
        return []
    client = trip.one.client("stepfunctions")
    events = client.get_execution_history(executionArn=execution["executionArn"], maxResults=1000)["events"]
    return [one["stateEnteredEventDetails"]["name"] for one in events if one["type"] == "TaskStateEntered"]
