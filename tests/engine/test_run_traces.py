"""A run's trace: from the command that submits it to the first line of its job, as a collector gets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from chalicelib import otlp
from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.traces import PendingTrace, Span, TraceContext, context_of
from chalicelib.engine.run_traces import AT_ONCE, RunTraces
from chalicelib.errors import Refused
from chalicelib.machines.instance import INSTANCE
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.log_pages import LogPage
from chalicelib.store.logs import LogStore
from tests.api.rig import ADMIN, Rig, submit, task
from tests.api.test_runs import finish, job_of
from tests.cli.conftest import Dstack
from tests.cli.conftest import bare as bare  # noqa: PLC0414
from tests.cli.printed import RealPlane
from tests.harness.collector import Collector, collecting
from tests.world import nouns as b
from tests.world.time import NOW

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RealPlane]:
    found = RealPlane()
    (tmp_path / "api").mkdir()
    found.rig = Rig.at(tmp_path / "api")
    found.rig.world.plane = replace(found.rig.world.plane, traces=True)
    yield found
    found.rig.world.plane.store.close()


@pytest.fixture
def dstack(bare: Dstack, plane: RealPlane) -> Dstack:
    """A command line with the project of the real API."""
    added = bare("project", "add", "--name", "main", "--url", plane.url, "--token", ADMIN, "-y")
    assert added.code == 0, added.err
    return bare


@pytest.fixture
def rig(plane: RealPlane) -> Rig:
    return plane.rig


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=tests")
        yield found


def traces_of(rig: Rig, collector: Collector) -> RunTraces:
    export = otlp.exporter("dstack-server", "authorization=Bearer%20of-the-collector")
    assert export is not None and collector.url
    plane = rig.world.plane
    return RunTraces(plane.read, plane.logs, plane.clock, export)


def waiting(rig: Rig) -> list[PendingTrace]:
    return [nouns.read(PendingTrace, each) for each in all_of(rig.world.store, "main", keys.PENDING_TRACES)]


def begin(rig: Rig, run_id: str, *, bought: bool) -> Job:
    """The job gets a machine, which takes 30 seconds to come; its image is pulled for 5, and it writes after 2."""
    clock = rig.world.clock
    clock.pass_(1)
    machine = b.machine(0, created_at=clock.now(), for_run=bought, status="pending" if bought else "idle")
    rig.save(machine.with_(version=0))
    if bought:
        for seconds, event in ((4, "accepted"), (30, "joined")):
            clock.pass_(seconds)
            stored = nouns.find(rig.world.store, type(machine), keys.instance(machine.id))
            assert stored is not None
            started = {"started_at": clock.now()} if event == "joined" else {}
            step = (draft := Draft(clock.now())).move_instance(stored, event, **started) and draft.step()
            rig.world.store.commit([nouns.put(each) for each in (*step.saves, *step.events)])
    job, now = job_of(rig, run_id), clock.now()
    clock.pass_(8)
    where = Assignment(
        instance_id=machine.id,
        instance_name=machine.name,
        fleet_id=machine.fleet_id,
        fleet_name=machine.fleet_name,
        offer=machine.offer,
        assigned_at=machine.created_at,
    )
    rig.save(
        job.with_(
            status=JobStatus.running,
            assignment=where,
            provisioned_at=machine.created_at,
            pulling_at=now + SECOND,
            running_at=now + 6 * SECOND,
        )
    )
    return job_of(rig, run_id)


def write_line(rig: Rig, job: Job) -> None:
    at = rig.world.clock.now()
    rig.world.plane.logs.append(job.project_id, job.id, 0, [(at, b"hello, with token=secret\n"), (at + 1, b"more\n")])


@pytest.mark.slow
def test_one_trace_leads_from_the_command_to_the_first_line(
    plane: RealPlane, dstack: Dstack, collector: Collector
) -> None:
    rig = plane.rig
    (dstack.terminal.cwd / "train.yml").write_text("type: task\nname: train\ncommands: [ls]\nenv: [TOKEN=secret]\n")
    dstack.terminal.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    assert dstack("apply", "-f", "train.yml", "-y", "-d").code == 0
    (command,) = collector.spans
    assert (command["service"], command["name"], command["parent"]) == ("dstack-cli", "dstack apply", "")
    traces = traces_of(rig, collector)
    (pending,) = waiting(rig)
    job = begin(rig, pending.run_id, bought=True)
    assert traces.run() == 0 and len(collector.spans) == 1, "its job hasn't written yet"
    write_line(rig, job)
    assert traces.run() == 1 and waiting(rig) == [] and traces.run() == 0
    spans = {each["name"]: each for each in collector.spans}
    assert list(spans) == [
        "dstack apply", "submit run", "job until its first line", "provider creates machine", "machine starts",
        "decide", "agent begins", "pull image", "first line",
    ]  # fmt: skip
    assert {each["trace"] for each in spans.values()} == {command["trace"]}
    above = {each["id"]: each["name"] for each in spans.values()}
    assert {name: above.get(each["parent"], "") for name, each in spans.items()} == {
        "dstack apply": "",
        "submit run": "dstack apply",
        "job until its first line": "submit run",
        **dict.fromkeys(list(spans)[3:], "job until its first line"),
    }
    lasted = {name: round((each["end"] - each["start"]) / SECOND) for name, each in list(spans.items())[2:]}
    assert lasted == {
        "job until its first line": 43,
        "provider creates machine": 4,
        "machine starts": 30,
        "decide": 1,
        "agent begins": 1,
        "pull image": 5,
        "first line": 2,
    }
    assert spans["pull image"]["attributes"]["dstack.backend"] == "aws"
    assert spans["submit run"]["attributes"]["dstack.run.name"] == "train"
    assert "secret" not in str(collector.spans)
    path, headers = collector.requests[-1]
    assert path == "/v1/traces" and headers["authorization"] == "Bearer of-the-collector"
    assert {each["service"] for each in collector.spans} == {"dstack-cli", "dstack-server"}


@pytest.mark.slow
def test_a_command_sends_no_trace_unless_it_is_asked_to(plane: RealPlane, dstack: Dstack, collector: Collector) -> None:
    (dstack.terminal.cwd / "train.yml").write_text("type: task\nname: train\ncommands: [ls]\n")
    for name, value in (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")):
        dstack.terminal.env.update({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, name: value})
        assert dstack("apply", "-f", "train.yml", "-y", "-d", "-n", name.lower().replace("_", "-")).code == 0
        del dstack.terminal.env["OTEL_EXPORTER_OTLP_ENDPOINT"], dstack.terminal.env[name]
    assert dstack("apply", "-f", "train.yml", "-y", "-d").code == 0
    assert collector.spans == [] and [each.caller for each in waiting(plane.rig)] == ["", "", ""]
    assert not [each for each in plane.requests if "traceparent" in {name.lower() for name in each.headers}]


@pytest.mark.slow
def test_a_command_goes_on_with_the_trace_of_its_environment(
    plane: RealPlane, dstack: Dstack, collector: Collector
) -> None:
    (dstack.terminal.cwd / "train.yml").write_text("type: task\nname: train\ncommands: [ls]\n")
    dstack.terminal.env.update({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "TRACEPARENT": CALLER})
    assert dstack("apply", "-f", "train.yml", "-y", "-d").code == 0
    (command,), (pending,) = collector.spans, waiting(plane.rig)
    assert f"00-{command['trace']}-{command['parent']}-01" == CALLER
    assert pending.caller == f"00-{command['trace']}-{command['id']}-01"


def submitted(rig: Rig, header: str = "", name: str = "train") -> list[PendingTrace]:
    spec = {"plan": {"run_spec": task(name), "current_resource": None}, "force": False}
    reply = rig.call(f"/api/project/{rig.project.name}/runs/apply", spec, traceparent=header)
    assert reply.status == 200, reply.body
    return waiting(rig)


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (CALLER, [CALLER]),
        ("", [""]),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", [""]),
        (CALLER.upper(), [""]),
        (CALLER + "-x" * 5000, [""]),
        ("anything", [""]),
        (CALLER[:-2] + "00", []),
    ],
)
def test_what_a_run_keeps_of_its_callers_trace(rig: Rig, header: str, kept: list[str]) -> None:
    assert [each.caller for each in submitted(rig, header)] == kept


def test_nothing_is_kept_where_nobody_collects_traces(rig: Rig) -> None:
    rig.world.plane = replace(rig.world.plane, traces=False)
    assert submitted(rig, CALLER) == []


class Collected(list[Span]):
    """Takes spans, or refuses them."""

    refuses = False

    def __call__(self, spans: Any) -> bool:
        if not self.refuses:
            self += spans
        return not self.refuses

    def of(self, rig: Rig) -> RunTraces:
        plane = rig.world.plane
        return RunTraces(plane.read, plane.logs, plane.clock, self)


def test_a_trace_that_isnt_taken_is_sent_again_after_a_restart(rig: Rig) -> None:
    (pending,) = submitted(rig, CALLER)
    write_line(rig, begin(rig, pending.run_id, bought=False))
    taken = Collected()
    taken.refuses = True
    assert taken.of(rig).run() == 0 and waiting(rig) == [pending]
    taken.refuses = False
    assert taken.of(rig).run() == 1 and waiting(rig) == []
    again = Collected()
    rig.save(pending.with_(version=0))
    assert again.of(rig).run() == 1 and list(again) == list(taken), "the same spans, with the same ids"
    names = [each.name for each in taken]
    assert names == ["submit run", "job until its first line", "decide", "agent begins", "pull image", "first line"]
    assert taken[0].parent == context_of(CALLER)


def test_a_run_whose_log_cant_be_read_keeps_no_other_from_having_its_trace(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    (damaged,) = submitted(rig)
    begin(rig, damaged.run_id, bought=False)
    rig.save(PendingTrace(run_id="erased", at=NOW))

    class Logs:
        def read(self, *_: object) -> LogPage:
            raise Refused("The log is damaged.")

    plane = rig.world.plane
    traces = RunTraces(plane.read, cast("LogStore", Logs()), plane.clock, Collected())
    assert traces.run() == 1 and waiting(rig) == [damaged]
    assert f"the trace of run {damaged.run_id} can't be made" in caplog.text


def test_a_run_that_fails_without_a_line_has_a_trace_that_says_so(rig: Rig) -> None:
    (pending,) = submitted(rig)
    finish(rig, pending.run_id, RunStatus.failed)
    job = job_of(rig, pending.run_id)
    rig.save(job.with_(status=JobStatus.failed, reason=None, finished_at=rig.world.clock.now() + 5 * SECOND))
    taken = Collected()
    assert taken.of(rig).run() == 1
    assert [(each.name, each.error) for each in taken] == [("submit run", ""), ("job until its first line", "failed")]
    assert taken[0].parent is None


def test_a_trace_waits_for_a_day_and_a_deleted_run_has_none(rig: Rig) -> None:
    submit(rig, task("waits"))
    taken = Collected()
    assert taken.of(rig).run() == 0
    rig.world.clock.pass_(DAY / SECOND)
    assert taken.of(rig).run() == 1 and [each.name for each in taken] == ["submit run"]
    rig.save(PendingTrace(run_id="erased", at=NOW))
    assert taken.of(rig).run() == 1 and len(taken) == 1 and waiting(rig) == []


def test_many_that_wait_dont_keep_the_last_from_being_seen(rig: Rig) -> None:
    runs = [b.run(f"run-{number:03d}") for number in range(AT_ONCE + 1)]
    last = max(runs, key=lambda run: run.id)
    for run in runs:
        done = run.with_(status=RunStatus.done) if run is last else run
        rig.save(done.with_(version=0), PendingTrace(run_id=run.id, at=rig.world.clock.now()))
    traces = Collected().of(rig)
    assert [traces.run(), traces.run(), traces.run()] == [0, 1, 0] and len(waiting(rig)) == AT_ONCE


def test_the_library_is_asked_for_only_where_traces_are_wanted() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}
    assert otlp.wanted(endpoint) and not otlp.wanted({})
    assert not otlp.wanted({**endpoint, "OTEL_SDK_DISABLED": "TRUE"})
    assert not otlp.wanted({**endpoint, "OTEL_TRACES_EXPORTER": "console"})
    assert TraceContext("1" * 32, "2" * 16, sampled=False).header.endswith("-00")
    assert INSTANCE.table["pending"]["accepted"] == "provisioning" and Run.kind == "run"
