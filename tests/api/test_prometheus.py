"""`/metrics`, read by Prometheus' own parser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chalicelib.api.wire.prometheus import text_of
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.objectives import DECISIONS, OBJECTIVES
from chalicelib.domain.runs import RunStatus
from chalicelib.domain.services import Durations, Traffic
from chalicelib.domain.tenants import ProjectRole
from chalicelib.engine.counters import Counters
from chalicelib.engine.measures import Measures
from chalicelib.engine.reconcile import Pass
from chalicelib.planning.kernel.plan import Effect, Failed
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.operator.exposition import FAMILIES, Exposition
from chalicelib.usecases.runs.metrics import metric_puts
from chalicelib.usecases.services.traffic import report
from docs import metrics_page
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create
from tests.api.test_runs import finish, job_of, placed
from tests.api.test_services import service

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "dstack.json"
JOB = {"project_name", "user_name", "run_name", "run_id", "job_name", "job_id", "job_num", "replica_num"} | {
    "run_type",
    "backend",
    "gpu",
}
INSTANCE = {"project_name", "fleet_name", "fleet_id", "instance_name", "instance_id", "instance_type", "backend", "gpu"}

Read = dict[str, list[tuple[dict[str, str], float]]]


def read(text: str) -> Read:
    """By the name of the sample: labels and value."""
    found: Read = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def scraped(rig: Rig, token: str = ADMIN) -> Read:
    reply = rig.call("/metrics", token=token, method="GET")
    assert reply.status == 200, reply.body
    return read(reply.body.decode())


def values(found: Read, name: str) -> list[float]:
    return [value for _, value in found.get(name, [])]


@pytest.fixture
def busy(rig: Rig) -> Rig:
    """A fleet with a machine, a run that uses it, one that waits and one that failed."""
    add_instance(rig, create(rig, fleet()))
    for name in ("train", "ended", "waits"):
        submit(rig, task(name))
    now = rig.world.clock.now()
    run = {name: rig.ok("P/runs/get", {"run_name": name})["id"] for name in ("train", "ended")}
    job = placed(job_of(rig, run["train"]), now)
    rig.save(job)
    load = {"cpu_usage_micro": 90 * SECOND, "memory_usage_bytes": 2048, "memory_working_set_bytes": 1024}
    gpus = [{"memory_usage_bytes": 4096, "util_percent": 50}, {"util_percent": 0}]  # one more than its offer says
    point = MetricPoint.model_validate({"task": job.id, "at": now, **load, "gpus": gpus})
    rig.world.plane.store.commit(metric_puts([point], {job.id: job}, now, 7))
    finish(rig, run["ended"], RunStatus.failed)
    waits = job_of(rig, rig.ok("P/runs/get", {"run_name": "waits"})["id"])
    rig.save(waits.with_(due_at=now))  # a look found no place
    rig.world.clock.pass_(HOUR / SECOND)
    return rig


@pytest.mark.parametrize(("health", "number"), [("healthy", 0), ("warning", 1), ("failure", 2)])
def test_a_machines_health_is_a_number(busy: Rig, health: str, number: int) -> None:
    read = busy.world.plane.read
    (machine,) = (each for fleet in read.fleets(busy.project.id) for each in read.instances(fleet.id))
    busy.save(machine.with_(health=health))
    assert values(scraped(busy), "dstack_instance_health") == [number]


def test_what_runs_costs_and_waits(busy: Rig) -> None:
    found = scraped(busy)
    ((labels, price),) = found["dstack_job_price_dollars_per_hour"]
    assert labels.keys() == {f"dstack_{name}" for name in JOB} and price > 0
    assert (labels["dstack_run_name"], labels["dstack_user_name"], labels["dstack_run_type"]) == (
        "train",
        "admin",
        "task",
    )
    assert values(found, "dstack_job_duration_seconds_total") == [3600]
    assert values(found, "dstack_job_cpu_time_seconds_total") == [90]
    assert values(found, "dstack_job_memory_working_set_bytes") == [1024]
    assert values(found, "dstack_job_gpu_usage_ratio") == [0.5, 0]
    assert values(found, "dstack_job_gpu_memory_usage_bytes") == [4096]
    assert values(found, "dstack_job_gpu_memory_total_bytes") == [80 * 1024**3]
    ((labels, _),) = found["dstack_instance_price_dollars_per_hour"]
    assert labels.keys() == {f"dstack_{name}" for name in INSTANCE}
    assert values(found, "dstack_instance_health") == [0]
    ((labels, _),) = found["dstack_run_count_total"]
    assert labels == {"dstack_project_name": "main", "dstack_user_name": "admin"}
    assert values(found, "dstack_run_count_total") == [3] and values(found, "dstack_run_count_failed_total") == [1]
    assert values(found, "dstack_run_count_done_total") == [0]
    assert sum(values(found, "dstack_runs")) == 2
    assert all(labels.keys() == {"dstack_project_name", "dstack_status"} for labels, _ in found["dstack_runs"])
    assert values(found, "dstack_queue_jobs") == [1] and values(found, "dstack_queue_age_seconds") == [3600]
    assert values(found, "dstack_project_price_dollars_per_hour") == [
        values(found, "dstack_instance_price_dollars_per_hour")[0]
    ]
    unnamed = [name for name, lines in found.items() for labels, _ in lines if "dstack_project_name" not in labels]
    assert unnamed == [], "what is of a project says of which"


@pytest.mark.parametrize(
    "model",
    [{"type": "chat", "name": "my-org/tiny", "format": "openai", "prefix": "/v1"}, "my-org/tiny"],
    ids=["whole", "its-name"],
)
def test_the_tokens_of_a_model_are_those_that_its_doors_have_counted(rig: Rig, model: Any) -> None:
    run_id = submit(rig, service(model=model))["id"]
    assert values(scraped(rig), "dstack_service_prompt_tokens_total") == []
    seen = Traffic(run_id=run_id, door="server", at=rig.world.clock.now(), prompt_tokens=7, completion_tokens=90)
    report(rig.world.plane, "server", [seen])
    found = scraped(rig)
    ((labels, prompt),) = found["dstack_service_prompt_tokens_total"]
    assert prompt == 7 and values(found, "dstack_service_completion_tokens_total") == [90]
    assert labels == {
        "dstack_project_name": "main", "dstack_run_name": "chat", "dstack_run_id": run_id,
        "dstack_model": "my-org/tiny", "dstack_door": "server",
    }  # fmt: skip


def test_how_long_answers_took_is_a_histogram_of_each_door(rig: Rig) -> None:
    run_id = submit(rig, service())["id"]
    seen = Traffic(run_id=run_id, door="said", at=rig.world.clock.now())
    report(rig.world.plane, "server", [seen])
    assert not any("_seconds" in name and "service" in name for name in scraped(rig)), "it has answered nothing"
    report(rig.world.plane, "server", [seen.with_(whole=Durations(histogram=(2, 0, 1), seconds=0.02))])
    named = {"dstack_project_name": "main", "dstack_run_name": "chat", "dstack_run_id": run_id, "dstack_door": "server"}
    name = "dstack_service_request_duration_seconds"
    found = scraped(rig)
    assert [number for _, number in found[f"{name}_bucket"]] == [2, 2, *[3] * 23]
    assert [labels.pop("le") for labels, _ in found[f"{name}_bucket"]][:2] == ["0.005", "0.01"]
    assert found[f"{name}_sum"] == [(named, 0.02)] and found[f"{name}_count"] == [(named, 3)]
    assert all(labels == named for labels, _ in found[f"{name}_bucket"])


def test_who_sees_what(busy: Rig) -> None:
    assert busy.call("/metrics", token=None, method="GET").status == 403
    member, stranger = busy.user("ann", ProjectRole.user), busy.user("far")
    assert scraped(busy, member) == scraped(busy)
    assert scraped(busy, stranger) == {}


def test_the_engines_figures_are_for_admins(rig: Rig) -> None:
    counters = Counters()
    passes = counters.passes(lambda units: Pass(units=3, conflicts=1, failed={"run/a": "Bug"}))
    passes.run(["run/a"])
    passes.run([])
    bought = Effect("instance/a", "vultr", 0)
    counters.executed(bought, Failed("instance/a", "InsufficientCapacity", "none"))
    counters.executed(bought, "too late")
    rig.world.plane = replace(rig.world.plane, counters=counters)
    found = scraped(rig)
    names = ("passes", "units", "conflicts", "units_failed")
    assert [values(found, f"dstack_engine_{name}_total") for name in names] == [[2], [6], [2], [2]]
    outcomes = {(labels["effect"], labels["outcome"]): value for labels, value in found["dstack_engine_effects_total"]}
    assert outcomes == {(type(bought).__name__, "InsufficientCapacity"): 1, (type(bought).__name__, "too late"): 1}
    assert not [name for name in scraped(rig, rig.user("ann", ProjectRole.user)) if name.startswith("dstack_engine")]


def test_admins_see_readiness_objectives_and_how_long_things_took(rig: Rig) -> None:
    counters = Counters()
    measures = Measures(counters)
    for seconds in (1, 20, 400):
        measures.took(DECISIONS, seconds * SECOND)
    ready = {"store": "", "disk": "It is full."}
    rig.world.plane = replace(rig.world.plane, counters=counters, problems=lambda: ready)
    found = scraped(rig)
    assert {labels["check"]: value for labels, value in found["dstack_ready"]} == {"store": 1, "disk": 0}
    for name, expected in (("events", 3), ("misses", 2)):
        series = found[f"dstack_objective_{name}_total"]
        assert {labels["objective"]: value for labels, value in series} == dict.fromkeys(OBJECTIVES, 0) | {
            DECISIONS: expected
        }
    targets = {labels["objective"]: value for labels, value in found["dstack_objective_target_ratio"]}
    assert targets == {name: each.target for name, each in OBJECTIVES.items()}
    below = {labels["le"]: value for labels, value in found["dstack_job_decision_seconds_bucket"]}
    assert (below["0.5"], below["1"], below["30"], below["+Inf"]) == (0, 1, 2, 3)
    assert values(found, "dstack_job_decision_seconds_sum") == [421]
    assert values(found, "dstack_job_decision_seconds_count") == [3]
    of_members = scraped(rig, rig.user("ann", ProjectRole.user))
    assert not [name for name in of_members if name.startswith(("dstack_objective", "dstack_ready", "dstack_job_d"))]


def test_any_text_is_a_label() -> None:
    made = Exposition(0)
    odd = 'a "quoted" \\ back\nslash é'
    made.add("dstack_queue_jobs", 1, project_name=odd)
    assert read(text_of(made).decode()) == {"dstack_queue_jobs": [({"dstack_project_name": odd}, 1.0)]}


def test_nothing_at_all_is_an_exposition() -> None:
    assert read(text_of(Exposition(0)).decode()) == {}


def test_the_dashboard_asks_for_what_there_is() -> None:
    """Every metric of its queries is one of ours, with labels that it has."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [each["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    named = {name for text in queries for name in re.findall(r"dstack_[a-z_]+", text)}
    named = {re.sub(r"_seconds_(bucket|count)$", "_seconds", name) for name in named}  # of histograms
    labels = {f"dstack_{name}" for name in (*JOB, *INSTANCE, "status", "gpu_num")}
    assert len(queries) > 10 and named - labels and named - labels <= set(FAMILIES)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) and all(panel["title"] for panel in board["panels"])


def test_the_page_is_up_to_date() -> None:
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.page(), "make docs"
