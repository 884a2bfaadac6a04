"""What an operator sees of the functions: logs as JSON with the ids of what they are about, and a few metrics.

Both are lines on the output, which Lambda carries to CloudWatch: nothing is called, so nothing can fail or wait. A
metric costs $0.30 for each month in which it has a value, prorated by the hour, and as much again for every value of a
dimension. So there are few, each is a name in the stage's own namespace, and only what happened is written: a quiet
installation has none.

Powertools is imported with the first event: it stands on botocore, which a function has by then.
"""

from __future__ import annotations

import logging
import sys

from chalicelib.engine.log_context import ids

UNITS_FAILED = "UnitsFailed"  # of a pass: each is tried again, and has an event
EFFECTS_FAILED = "EffectsFailed"  # calls to a provider that raised what nobody expected: Lambda repeats them
DEAD_LETTERS = "SetAside"  # events that Lambda gave up; alarms know the metric by this name


def structure_logs(root: logging.Logger | None = None, level: int = logging.INFO) -> None:
    """Every logger below this one (all, unless it is given) writes JSON from here on. What Lambda's own handler adds to
    records, as the request's id, stays. The handler goes: Lambda may take its lines for text, and put them into JSON of
    its own."""
    root = logging.getLogger() if root is None else root
    handler = structured(logging.StreamHandler(sys.stdout))
    for filter_ in (one for each in root.handlers for one in each.filters):
        handler.addFilter(filter_)
    root.handlers[:] = [handler]
    root.setLevel(level)


def structured(handler: logging.Handler) -> logging.Handler:
    """The same: its lines are JSON, with a time that Lambda reads."""
    from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

    handler.setFormatter(LambdaPowertoolsFormatter(use_rfc3339=True))
    handler.addFilter(with_ids)
    return handler


def with_ids(record: logging.LogRecord) -> bool:
    """A filter that lets everything pass, with the ids of the units at work."""
    record.__dict__.update(ids())
    return True


def count(namespace: str, name: str, number: int) -> None:
    """`number` more of what `name` counts."""
    if number:
        from aws_lambda_powertools.metrics import MetricUnit, single_metric

        with single_metric(name=name, unit=MetricUnit.Count, value=number, namespace=namespace):
            pass
