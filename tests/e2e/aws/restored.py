"""The stage's records go back to a moment before a machine was bought: the deployed functions then look before they
act. The moment is kept by a stand-in in front of the emulator, and the rest of the command is as somebody runs it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from infra import command, restore
from tests.e2e.aws.deployment import PATIENCE, STAGE
from tests.e2e.aws.front import NO_ANSWER
from tests.e2e.aws.journey import Journey
from tests.emulators.moments import Moments
from tests.harness.server import HttpError, until
from tests.scenarios.stages import Real

PROJECT = "restored"
TABLE = f"dstack-{STAGE}"
FLEET = "type: fleet\nname: later\nnodes: 0..1\n"
TASK = """type: task
name: {name}
resources: {{cpu: 1.., memory: 1GB.., disk: 10GB..}}
commands:
  - while [ ! -e {flag} ]; do sleep 0.2; done
  - touch {done}
"""
QUIET = 15.0  # seconds in which calls end that the emulator is at: none takes as long as it might in AWS


def restored(trip: Journey) -> None:
    """Restored, the stage lets a job go on that it doesn't know, and acts at an operator's word."""
    stage, dynamo = trip.at(PROJECT), trip.one.client("dynamodb")
    moments, wanted = Moments(dynamo), {"PointInTimeRecoveryEnabled": True}
    # The template asks for it, which the emulator's CloudFormation doesn't hear.
    dynamo.update_continuous_backups(TableName=TABLE, PointInTimeRecoverySpecification=wanted)
    stage.home.chmod(0o777)
    apply(stage, "later.dstack.yml", FLEET)
    at = datetime.now(UTC).replace(microsecond=0)
    moments.keep(TABLE, at)
    machines = trip.one.data / "fake-cloud" / "resources"
    others = {*machines.iterdir()}  # of earlier stages, some of them idle
    flag, done = stage.home / "flag", stage.home / "done"
    apply(stage, "forgotten.dstack.yml", TASK.format(name="forgotten", flag=flag, done=done))
    until("the task to run", lambda: status(stage, "forgotten") == "running", every=0.5, seconds=PATIENCE)
    assert trip.one.front is not None
    with trip.one.front.closed():  # the emulator would end the calls that it is at
        assert go_back(trip, moments, at) == 0
    trip.one.lead()
    assert status(stage, "forgotten") is None, "nobody has heard of it"
    sweep = partial(trip.one.client("lambda").invoke, FunctionName=f"{TABLE}-sweep_orphans", Payload=b"{}")
    sweep()
    for words in ("which no record names", "the agent of a machine that the records don't know reports"):
        until(words, partial(says, stage, words), every=1, seconds=PATIENCE)
    assert "It only looks until" in shown(stage)
    flag.touch()
    until("the task to end as it would have", done.exists, every=0.3, seconds=PATIENCE)
    assert "by an operator's word" in shown(stage, "--go-on")

    def swept() -> bool:
        sweep()
        return {*machines.iterdir()} <= others

    until("what no record names to be given back", swept, every=5, seconds=PATIENCE)
    apply(stage, "known.dstack.yml", TASK.format(name="known", flag=flag, done=stage.home / "again"))
    until("another run to end", lambda: status(stage, "known") == "done", every=0.5, seconds=PATIENCE)
    trip.clear(stage)


def go_back(trip: Journey, moments: Moments, at: datetime) -> int:
    emulator = trip.one.emulator
    assert emulator is not None
    clients = {"dynamodb": moments}
    aws = restore.Aws(
        clients=lambda service: clients.get(service) or trip.one.client(service),
        sleep=lambda seconds: time.sleep(min(seconds, QUIET)),
        poll=0.5,
    )
    parser = command.parser("infra.restore", "")
    parser.add_argument("--at")
    given = parser.parse_args([STAGE, "--at", at.isoformat(), "--yes"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**emulator.environment, "DSTACK_AWS_ENDPOINT": emulator.url}.items():
            patch.setenv(name, value)
        return command.run(given, partial(_restore, aws))


def _restore(aws: restore.Aws, given: Any, say: command.Say, agree: command.Agree) -> Any:
    return restore.restore(given, say, agree, aws)


def apply(stage: Real, name: str, text: str) -> None:
    (stage.home / name).write_text(text)
    output, code = stage.dstack(["apply", "-y", "-d", "-f", name])
    assert code == 0, output


def status(stage: Real, name: str) -> str | None:
    """None: there is no such run."""

    def asked() -> dict[str, Any] | None:
        try:
            listed = stage.server.call("/api/runs/list", {"project_name": stage.project, "limit": 50})
        except HttpError as error:
            if error.status != NO_ANSWER:
                raise
            return None
        return {"statuses": {run["run_spec"]["run_name"]: run["status"] for run in listed}}

    found: str | None = until("an answer", asked, seconds=PATIENCE)["statuses"].get(name)
    return found


def says(stage: Real, words: str) -> bool:
    return words in shown(stage)


def shown(stage: Real, *flags: str) -> str:
    """What the command shows, asked until the emulator answers."""

    def asked() -> str:
        output, code = stage.dstack(["server", "restored", "--project", stage.project, *flags])
        return " ".join(output.split()) if code == 0 else ""

    return str(until("an answer", asked, every=1, seconds=PATIENCE))
