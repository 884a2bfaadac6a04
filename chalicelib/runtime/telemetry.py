"""Telemetry of the functions: logs as JSON with the ids of the units concerned, and a few metrics.

Both are lines on the output, which Lambda sends to CloudWatch: no call is made, so nothing can fail or wait. A metric
costs $0.30 for each month in which it has a value, prorated by the hour, and as much again for every value of a
dimension. So there are few, without dimensions, in the stage's own namespace, and only nonzero values are written: a
quiet installation has none.

Powertools is imported with the first event: it needs botocore, which a function has loaded by then.
"""

from __future__ import annotations

import logging
import sys

from chalicelib.domain.objectives import DECISIONS, STARTS
from chalicelib.engine.log_context import ids

UNITS_FAILED = "UnitsFailed"  # units that a pass failed to process: each is retried, and has an event
EFFECTS_FAILED = "EffectsFailed"  # calls to a provider with an unexpected error: Lambda repeats them
SLOW = {DECISIONS: "SlowDecisions", STARTS: "SlowStarts"}  # misses of objectives
DEAD_LETTERS = "SetAside"  # events that Lambda gave up; alarms know the metric by this name


def structure_logs(root: logging.Logger | None = None, level: int = logging.INFO) -> None:
    """Make all loggers below `root` (by default all loggers) write JSON. The fields that Lambda's own handler adds to
    records, such as the request's id, stay. The handler itself is removed: Lambda might treat its lines as text, and
    wrap them in JSON of its own."""
    root = logging.getLogger() if root is None else root
    handler = structured(logging.StreamHandler(sys.stdout))
    for filter_ in (one for each in root.handlers for one in each.filters):
        handler.addFilter(filter_)
    root.handlers[:] = [handler]
    root.setLevel(level)


def structured(handler: logging.Handler) -> logging.Handler:
    """The handler, set to write JSON with a time that Lambda understands."""
    from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

    handler.setFormatter(LambdaPowertoolsFormatter(use_rfc3339=True))
    handler.addFilter(with_ids)
    return handler


def with_ids(record: logging.LogRecord) -> bool:
    """A filter that adds the ids of the units being processed, and passes everything."""
    record.__dict__.update(ids())
    return True


def count(namespace: str, name: str, number: int) -> None:
    """Add `number` to the metric `name`."""
    if number:
        from aws_lambda_powertools.metrics import MetricUnit, single_metric

        with single_metric(name=name, unit=MetricUnit.Count, value=number, namespace=namespace):
            pass
