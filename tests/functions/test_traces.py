"""A run's trace from a stage in AWS: the API notes where it begins, and the schedule's pass sends it to a collector."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import LambdaSettings
from chalicelib.runtime.tracing import lazy_trace_ports
from functions import reconcile
from infra import artefacts, stateless
from infra.functions import FUNCTIONS
from tests.engine.test_run_traces import CALLER, begin, submitted, write_line
from tests.functions.test_handlers import Stack
from tests.harness.collector import Collector, collecting
from tests.harness.server import ROOT

STORED = {"settings": '{"table": "t", "bucket": "b", "wake_function": "w", "api_url": "https://x"}'}
HEADERS = "authorization=Bearer%20of-the-collector\n"  # as a file has it


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


def settings(collector: str, **stored: str) -> LambdaSettings:
    """What `reconcile` reads at its start."""
    function = next(each for each in FUNCTIONS if each.name == "reconcile")
    variables = function.environment("dev", {"DSTACK_INSTALL_ID": "id", "OTEL_EXPORTER_OTLP_ENDPOINT": collector})
    there = {**STORED, **stored}
    return LambdaSettings.read(lambda path, names: {name: there[name] for name in names if name in there}, variables)


@pytest.mark.slow
def test_a_pass_of_the_schedule_sends_what_the_api_noted(tmp_path: Path, collector: Collector) -> None:
    found = settings(collector.url, **{"traces-headers": HEADERS})
    stack = Stack.at(tmp_path)
    root = Root(replace(stack.root.ports, **lazy_trace_ports(found.traces, found.trace_headers)))
    rig = stack.rig
    rig.world.plane = root.plane
    (pending,) = submitted(rig, CALLER)
    job = begin(rig, pending.run_id, bought=False)
    reconcile.handler(stack.fires("reconcile"), None, root)
    assert collector.requests == [], "its job hasn't written yet"
    write_line(rig, job)
    reconcile.handler({"units": []}, None, root)
    assert collector.requests == [], "who waits for a hint doesn't wait for a collector"
    reconcile.handler(stack.fires("reconcile"), None, root)
    names = {each["name"] for each in collector.spans}
    assert {"submit run", "job until its first line", "decide", "agent begins", "first line"} <= names
    assert {each["trace"] for each in collector.spans} == {CALLER.split("-")[1]}
    ((path, headers),) = collector.requests
    assert (path, headers["authorization"]) == ("/v1/traces", "Bearer of-the-collector")
    reconcile.handler(stack.fires("reconcile"), None, root)
    assert len(collector.requests) == 1
    stack.root.close()


def test_headers_are_a_secret_that_one_function_reads() -> None:
    assert [each.name for each in FUNCTIONS if "traces-headers" in each.reads] == ["reconcile"]
    found = settings("https://x", **{"traces-headers": HEADERS})
    assert found.trace_headers == HEADERS.strip() and "Bearer" not in repr(found)
    assert not settings("").traces and lazy_trace_ports(settings("").traces) == {}, "as without the parameter"


@pytest.mark.slow
def test_no_function_loads_the_library_before_there_is_a_trace() -> None:
    script = (
        "import sys; from chalicelib.runtime.tracing import lazy_trace_ports; made = lazy_trace_ports(True, 'a=b'); "
        "assert made['spans']([]); print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_functions_that_trace_get_the_endpoint_and_only_then_the_library() -> None:
    resources = stateless.template("dev")["Resources"]
    variables = {each.name: resources[each.id]["Properties"]["Environment"]["Variables"] for each in FUNCTIONS}
    told = {name: each for name, each in variables.items() if "OTEL_EXPORTER_OTLP_ENDPOINT" in each}
    assert told.keys() == {"api", "automate", "reconcile"}
    for each in told.values():
        assert each["OTEL_EXPORTER_OTLP_ENDPOINT"] == {"Ref": "TracesEndpoint"}
        assert each["OTEL_RESOURCE_ATTRIBUTES"] == "deployment.environment.name=dev"
    assert stateless.parameters()["TracesEndpoint"]["Default"] == ""
    usual, traced = artefacts.KINDS, artefacts.kinds(traces=True)
    more = {name: {*traced[name].packages} - {*usual[name].packages} for name in usual}
    assert more.pop("chalice") == {"opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"}
    assert set(map(frozenset, more.values())) == {frozenset()}
    assert {each.artefact for each in FUNCTIONS if each.traces} == {"chalice"}
