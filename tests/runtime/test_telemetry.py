"""What operators see of the functions, read as CloudWatch reads it."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from chalicelib.engine.log_context import ids, unit_context
from chalicelib.runtime import telemetry


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def logger(*handlers: logging.Handler) -> logging.Logger:
    """One that nobody else listens to."""
    made = logging.Logger("made")
    made.handlers[:] = handlers
    telemetry.structure_logs(made)
    return made


def test_a_line_of_log_says_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    log = logger()
    with unit_context("run/r1"), unit_context("instance/i1"):
        log.warning("it takes %s", "long")
    log.info("done")
    within, after = lines(capsys)
    assert (within["run_id"], within["instance_id"], within["message"]) == ("r1", "i1", "it takes long")
    assert within["level"] == "WARNING" and "run_id" not in after


def test_a_line_has_a_time_that_lambda_reads(capsys: pytest.CaptureFixture[str]) -> None:
    """It filters its functions' JSON by level, and takes a line without a time of RFC 3339 for one without a level."""
    logger().info("done")
    (line,) = lines(capsys)
    assert re.fullmatch(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}\.\d+(Z|[+-]\d\d:\d\d)", str(line["timestamp"]))


def test_a_failure_is_one_line_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        with unit_context("fleet/f1"):
            raise ValueError("bad")
    except ValueError:
        logger().exception("it failed")
    (line,) = lines(capsys)
    assert line["exception_name"] == "ValueError" and "Traceback" in str(line["exception"])


def test_what_lambda_adds_to_its_records_stays(capsys: pytest.CaptureFixture[str]) -> None:
    """Its handler knows the request's id."""
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(lambda record: setattr(record, "aws_request_id", "q1") or True)
    logger(handler).info("hello")
    (line,) = lines(capsys)
    assert line["aws_request_id"] == "q1"


def test_a_line_says_which_trace_it_is_of_where_calls_are_traced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logger()
    log.info("untraced")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-5759e988-bd862e3fe;Parent=53995c3f42cd8ad8;Sampled=1")
    log.info("traced")
    without, within = lines(capsys)
    assert "xray_trace_id" not in without and within["xray_trace_id"] == "1-5759e988-bd862e3fe"


def test_units_at_work_are_forgotten_when_they_are_left() -> None:
    with unit_context("run/r1"):
        with unit_context("run/r2"):
            assert ids() == {"run_id": "r2"}
        assert ids() == {"run_id": "r1"}
    assert ids() == {}


def test_a_metric_is_one_line_without_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.count("dstack-dev", telemetry.DEAD_LETTERS, 3)
    (line,) = lines(capsys)
    (directive,) = line["_aws"]["CloudWatchMetrics"]  # type: ignore[index]
    assert directive["Namespace"] == "dstack-dev" and directive["Dimensions"] == [[]]
    assert directive["Metrics"] == [{"Name": "SetAside", "Unit": "Count"}] and line["SetAside"] == [3.0]


def test_what_didnt_happen_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.count("dstack-dev", telemetry.DEAD_LETTERS, 0)
    assert lines(capsys) == []
