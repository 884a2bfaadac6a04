"""CloudWatch's alarms on how a stage does its work, for whoever asks for them: `--set Alarms=on`.

They are those alerts for Prometheus (`docs/prometheus/alerts.yml`) whose causes a stage's metrics show, and name the
same runbooks. An alarm costs $0.10 a month for each metric that it reads, whether anything runs or not, so none is made
unless it is asked for. They are in the stack of the alarm on spending, and notify its topic.

An alarm reads one window, where an alert reads a short one, too. The short one only decides how soon an alert is over:
an alarm lasts until its window holds little enough, an hour for most. Nothing counts the jobs that were decided and
started in time, because that would be a metric that costs money while all is well. So the alarms on jobs go by the
number of those that were late, and `SlowJobs` says how many an hour are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.objectives import ANSWERS, DECISIONS, OBJECTIVES, SPEED, STARTS
from chalicelib.runtime import telemetry
from infra.grants import dead_letter_queue

PRICE = 0.10  # dollars a month for each metric
FREE = 10  # metrics of alarms that AWS gives each account
FEW = 5  # misses that are no reason to wake somebody
MINUTE, HOUR = 60, 3600
FAILING, SLIPPING = "DstackObjectiveFailing", "DstackObjectiveSlipping"
BURNS = {FAILING: (14.4, HOUR), SLIPPING: (6.0, 6 * HOUR)}  # times the allowed rate, over how many seconds
RUNBOOKS = {
    FAILING: "objective-failing",
    SLIPPING: "objective-slipping",
    "DstackReconcilerStopped": "reconciler-stopped",
    "DstackUnitsFailing": "units-failing",
    "DstackEffectsRaising": "effects-raising",
    "DstackEventsSetAside": "events-set-aside",
}
CONDITION = "WorkIsWatched"
Properties = dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """A metric as an alarm reads it: its name, how its values become one, and whose it is."""

    space: str
    name: str
    how: str = "Sum"
    of: Mapping[str, str] | None = None  # dimensions

    def properties(self) -> Properties:
        named: Properties = {"Namespace": self.space, "MetricName": self.name}
        if self.of:
            named["Dimensions"] = [{"Name": name, "Value": value} for name, value in self.of.items()]
        return named


def resources(stage: str, topic: Any) -> dict[str, Any]:
    """The alarms, which notify the topic when they go off, and when they are over."""
    made = {**_of_requests(stage), **_of_jobs(stage), **_of_functions(stage)}
    notified = {"AlarmActions": [topic], "OKActions": [topic]}
    return {
        name: {"Type": "AWS::CloudWatch::Alarm", "Condition": CONDITION, "Properties": {**properties, **notified}}
        for name, properties in made.items()
    }


def metrics(stage: str) -> int:
    """How many metrics the alarms read, for each of which AWS charges."""
    alarms = (each["Properties"] for each in resources(stage, "").values())
    return sum(sum("MetricStat" in one for one in each.get("Metrics", ({"MetricStat": {}},))) for each in alarms)


def parameters() -> dict[str, Any]:
    return {
        "Alarms": {
            "Type": "String",
            "Default": "off",
            "AllowedValues": ["off", "on"],
            "Description": "on: CloudWatch watches how the stage works, for $0.10 a month for each metric",
        },
        "SlowJobs": {
            "Type": "Number",
            "Default": FEW,
            "MinValue": 1,
            "Description": "jobs an hour that may be decided about or started late before an alarm goes off",
        },
    }


def describe(stage: str, chosen: Mapping[str, str]) -> str:
    """The message that a deployment prints about them."""
    if chosen.get("Alarms") != "on":
        return ""
    count = metrics(stage)
    return (
        f"CloudWatch watches {count} of its metrics, for ${count * PRICE:.2f} a month without those {FREE} that are "
        "free in an account; --set Alarms=off ends that."
    )


def _of_requests(stage: str) -> dict[str, Properties]:
    """People's requests, which API Gateway measures; those of agents don't go through it."""
    api = {"ApiName": f"dstack-{stage}"}
    count = Metric("AWS/ApiGateway", "Count", of=api)
    failed = Metric("AWS/ApiGateway", "5XXError", of=api)
    quick = Metric("AWS/ApiGateway", "Latency", f"PR(:{OBJECTIVES[SPEED].within // 1000})", api)  # percent within that
    made = {}
    for alert, (times, seconds) in BURNS.items():
        for objective, missed, read in (
            (ANSWERS, "failed", {"failed": failed, "total": count}),
            (SPEED, "(total * (100 - quick) / 100)", {"quick": quick, "total": count}),
        ):
            allowed = f"{1 - OBJECTIVES[objective].target:.3f}"
            rate = f"IF({missed} > {FEW}, {missed} / total / {allowed}, 0)"
            made[f"{objective.title()}{alert.removeprefix('DstackObjective')}"] = {
                **_named(
                    stage, alert, f"{objective}, at {times:g} times the rate that the objective allows", objective
                ),
                **_maths(rate, read, seconds),
                **_over(times),
            }
    return made


def _of_jobs(stage: str) -> dict[str, Properties]:
    return {
        f"{objective.title()}Failing": {
            **_named(stage, FAILING, f"{objective}, for more jobs in an hour than SlowJobs says", objective),
            **_one(Metric(f"dstack-{stage}", telemetry.SLOW[objective]), HOUR),
            **_over({"Ref": "SlowJobs"}),
        }
        for objective in (DECISIONS, STARTS)
    }


def _of_functions(stage: str) -> dict[str, Properties]:
    passes = {"FunctionName": f"dstack-{stage}-reconcile"}
    calls, failed = (Metric("AWS/Lambda", name, of=passes) for name in ("Invocations", "Errors"))
    lost = Metric("AWS/SQS", "NumberOfMessagesSent", of={"QueueName": dead_letter_queue(stage)})
    own = f"dstack-{stage}"
    twice = {"EvaluationPeriods": 2, "DatapointsToAlarm": 2}
    return {
        "ReconcilerStopped": {
            **_named(stage, "DstackReconcilerStopped", "no pass in ten minutes"),
            **_maths("calls - FILL(failed, 0)", {"calls": calls, "failed": failed}, 10 * MINUTE),
            **_over(1),
            "ComparisonOperator": "LessThanThreshold",
            "TreatMissingData": "breaching",
        },
        "UnitsFailing": {
            **_named(stage, "DstackUnitsFailing", "passes have failed to process units for half an hour"),
            **_one(Metric(own, telemetry.UNITS_FAILED), 15 * MINUTE),
            **_over(0),
            **twice,
        },
        "EffectsRaising": {
            **_named(
                stage, "DstackEffectsRaising", "calls to providers have raised unexpected errors for half an hour"
            ),
            **_one(Metric(own, telemetry.EFFECTS_FAILED), 15 * MINUTE),
            **_over(0),
            **twice,
        },
        "EventsSetAside": {
            **_named(stage, "DstackEventsSetAside", "Lambda has given up an event, which is in the dead-letter queue"),
            **_one(lost, 5 * MINUTE),
            **_over(0),
        },
    }


def _named(stage: str, alert: str, what: str, objective: str = "") -> Properties:
    """Its name, and what a message says about it."""
    name = "-".join(filter(None, (RUNBOOKS[alert], objective)))
    text = f"{alert}: {what}. What to do: docs/operate/runbooks/{RUNBOOKS[alert]}.md"
    return {"AlarmName": f"dstack-{stage}-{name}", "AlarmDescription": text}


def _over(threshold: Any) -> Properties:
    """Without values there is nothing to say: nobody called, or nothing failed."""
    return {
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": threshold,
        "EvaluationPeriods": 1,
        "TreatMissingData": "notBreaching",
    }


def _one(metric: Metric, seconds: int) -> Properties:
    return {**metric.properties(), "Statistic": metric.how, "Period": seconds}


def _maths(expression: str, read: Mapping[str, Metric], seconds: int) -> Properties:
    result = {"Id": "result", "Expression": expression, "ReturnData": True}
    parts = [
        {
            "Id": name,
            "MetricStat": {"Metric": metric.properties(), "Period": seconds, "Stat": metric.how},
            "ReturnData": False,
        }
        for name, metric in read.items()
    ]
    return {"Metrics": [result, *parts]}
