"""docs/prometheus/alerts.yml and the dashboard, held to Prometheus' own tool; and a runbook for each alert."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.usecases.operator.exposition import FAMILIES
from cli.screen.terminal import Terminal
from infra import alarms
from tests.harness.debian import unpacked
from tests.harness.server import ROOT
from tests.world.cli import Dstack

ALERTS = ROOT / "docs" / "prometheus" / "alerts.yml"
BOARD = ROOT / "docs" / "grafana" / "dstack.json"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
# Of alarms in AWS, some of which are no alerts of Prometheus, and of alerts.
RUNBOOKS: dict[str, str] = {
    **{name: f"docs/operate/runbooks/{page}.md" for name, page in alarms.RUNBOOKS.items()},
    **{name: rule["annotations"]["runbook"] for name, rule in RULES.items()},
}
OF_PROMETHEUS = {"up", "scrape_duration_seconds"}
UP = 'up{job="dstack"}'
PROJECT = 'dstack_project_name="main"'
MACHINE = f'{PROJECT},dstack_instance_id="i",dstack_instance_name="gpu-0"'
FAILED, DONE = f"dstack_run_count_failed_total{{{PROJECT}}}", f"dstack_run_count_done_total{{{PROJECT}}}"
PRICE = f"dstack_instance_price_dollars_per_hour{{{MACHINE}}}"
BUSY = f"dstack_instance_busy_blocks{{{MACHINE}}}"
USE = f'dstack_job_gpu_usage_ratio{{{PROJECT},dstack_run_name="train",dstack_user_name="ada",dstack_gpu_num="0"}}'

EVENTS, MISSES, TARGET = (
    f'dstack_objective_{name}{{objective="answers"}}' for name in ("events_total", "misses_total", "target_ratio")
)

# The series, a value a minute for two and a half hours, with which an alert fires, and those with which it nearly does.
FIRES: dict[str, dict[str, str]] = {
    "DstackServerDown": {UP: "0x150"},
    "DstackReconcilerStopped": {"dstack_engine_passes_total": "7x150"},
    "DstackUnitsFailing": {"dstack_engine_units_failed_total": "0+1x150"},
    "DstackEffectsRaising": {'dstack_engine_effects_total{effect="Create",outcome="raised"}': "0+1x150"},
    "DstackQueueStuck": {f"dstack_queue_age_seconds{{{PROJECT}}}": "0+60x150"},
    "DstackInstanceFailing": {f"dstack_instance_health{{{MACHINE}}}": "2x150"},
    "DstackRunsFailing": {FAILED: "0+1x150", DONE: "0x150"},
    "DstackMachinesIdle": {PRICE: "2x150", BUSY: "0x150"},
    "DstackGpusUnused": {USE: "0.01x150"},
    "DstackScrapeSlow": {'scrape_duration_seconds{job="dstack"}': "12x150"},
    "DstackObjectiveFailing": {EVENTS: "0+100x150", MISSES: "0+2x150", TARGET: "0.999x150"},
    "DstackObjectiveSlipping": {EVENTS: "0+100x150", MISSES: "0+1x150", TARGET: "0.999x150"},
}
QUIET: dict[str, dict[str, str]] = {
    "DstackServerDown": {UP: "1x150"},
    "DstackReconcilerStopped": {"dstack_engine_passes_total": "0+1x150"},
    "DstackUnitsFailing": {"dstack_engine_units_failed_total": "0x100 1x50"},
    "DstackEffectsRaising": {'dstack_engine_effects_total{effect="Create",outcome="no_stock"}': "0+1x150"},
    "DstackQueueStuck": {f"dstack_queue_age_seconds{{{PROJECT}}}": "3000x150"},
    "DstackInstanceFailing": {f"dstack_instance_health{{{MACHINE}}}": "1x150"},
    "DstackRunsFailing": {FAILED: "0+1x150", DONE: "0+2x150"},
    "DstackMachinesIdle": {PRICE: "2x150", BUSY: "1x150"},
    "DstackGpusUnused": {USE: "0.5x150"},
    "DstackScrapeSlow": {'scrape_duration_seconds{job="dstack"}': "2x150"},
    "DstackObjectiveFailing": {EVENTS: "0+100x150", MISSES: "0+1x150", TARGET: "0.999x150"},
    "DstackObjectiveSlipping": {EVENTS: "0+1000x150", MISSES: "0+1x150", TARGET: "0.999x150"},
}


def promtool(*words: str) -> str:
    program = unpacked("prometheus", ROOT / ".venvs" / "promtool") / "usr/bin/promtool"
    env = {**os.environ, "GOGC": "400"}  # less than half of the time: it has little to collect
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fired(tmp_path: Path, cases: dict[str, dict[str, str]], expected: dict[str, list[dict[str, Any]]]) -> None:
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in {UP: "1x150", **series}.items()],
            "alert_rule_test": [{"eval_time": "2h29m", "alertname": name, "exp_alerts": expected[name]}],
        }
        for name, series in cases.items()
    ]
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(path))


LABELS: dict[str, dict[str, str]] = {
    "DstackServerDown": {"job": "dstack"},
    "DstackEffectsRaising": {"effect": "Create"},
    "DstackQueueStuck": {"dstack_project_name": "main"},
    "DstackInstanceFailing": {
        "dstack_project_name": "main",
        "dstack_instance_id": "i",
        "dstack_instance_name": "gpu-0",
    },
    "DstackRunsFailing": {"dstack_project_name": "main"},
    "DstackMachinesIdle": {"dstack_project_name": "main"},
    "DstackGpusUnused": {"dstack_project_name": "main", "dstack_run_name": "train", "dstack_user_name": "ada"},
    "DstackScrapeSlow": {"job": "dstack"},
    "DstackObjectiveFailing": {"objective": "answers"},
    "DstackObjectiveSlipping": {"objective": "answers"},
}
VALUES = {"DstackMachinesIdle": "2", "DstackScrapeSlow": "12"}


def alert(name: str) -> dict[str, Any]:
    """As Prometheus would send it."""
    labels, rule = LABELS.get(name, {}), RULES[name]

    def filled(text: str) -> str:
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
        return text.replace("{{ $value }}", VALUES.get(name, ""))

    annotations = {key: filled(text) for key, text in rule["annotations"].items()}
    return {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": annotations}


def test_promtool_reads_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", str(ALERTS))


def test_promtool_reads_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "board.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", str(path)) and len(queries) > 10


def test_each_alert_fires_and_says_what_about(tmp_path: Path) -> None:
    fired(tmp_path, FIRES, {name: [alert(name)] for name in RULES})


def test_no_alert_fires_without_its_cause(tmp_path: Path) -> None:
    fired(tmp_path, QUIET, {name: [] for name in RULES})


def test_each_alert_has_its_cases() -> None:
    assert set(FIRES) == set(QUIET) == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_an_alert_names_metrics_that_there_are(name: str) -> None:
    expr = re.sub(r"\{[^}]*\}|\bby \([^)]*\)|\bon \([^)]*\)", "", RULES[name]["expr"])
    named = set(re.findall(r"\b(?:dstack_\w+|up|scrape_\w+)\b", expr))
    assert named and named <= {*FAMILIES, *OF_PROMETHEUS}


@pytest.mark.parametrize("name", RUNBOOKS)
def test_an_alert_has_a_runbook_whose_commands_are_accepted(name: str) -> None:
    """`--help` is answered only once every other flag is understood."""
    page = (ROOT / RUNBOOKS[name]).read_text()
    assert page.startswith(f"# {name}\n") and f"[{name}](runbooks/" in (ROOT / "docs/operate/watch.md").read_text()
    commands = [line for block in re.findall(r"```shell\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert commands
    for words in map(shlex.split, commands):
        if words[0] == "curl":
            assert words[-1].endswith("/readyz")
            continue
        dstack = Dstack(Terminal(env={}))
        assert words[0] == "dstack" and dstack(*words[1:], "--help").code == 0, words
        assert dstack(*words[1:], "--no-such-flag", "--help").code != 0


def test_no_runbook_is_without_its_alert() -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs/operate/runbooks").glob("*.md")}
    assert pages == set(RUNBOOKS.values())
