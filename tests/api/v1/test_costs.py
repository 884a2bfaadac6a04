"""Costs over time, of what a control plane really did, on virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.costs import CostDay
from chalicelib.domain.instants import DAY, HOUR
from chalicelib.domain.runs import Run
from chalicelib.engine.cost_days import FIRST, close_days, hours
from chalicelib.store import nouns
from chalicelib.store.listing import all_of, every
from chalicelib.store.port import Delete
from tests.scenarios.stages import Virtual
from tests.world.embedded import EmbeddedSite
from tests.world.site import ADMIN

FLEET = "type: fleet\nname: pool\nnodes: 0..2\nidle_duration: 10m\nresources: {gpu: 1}\n"
TASK = "type: task\nname: train\ncommands: [sleep 3000]\nresources: {gpu: 1}\n"


pytestmark = pytest.mark.slow


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    yield from staged(tmp_path)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Virtual]:
    """A task has run for 50 minutes, and its machine is gone: nobody changes it."""
    for made in staged(tmp_path_factory.mktemp("past")):
        trained(made)
        yield made


def staged(folder: Path) -> Iterator[Virtual]:
    site, home = EmbeddedSite("costs", folder / "data"), folder / "home"
    home.mkdir()
    (home / "fleet.dstack.yml").write_text(FLEET)
    (home / "task.dstack.yml").write_text(TASK)
    made = Virtual(site, home, "main")
    assert made.dstack(["apply", "-f", "fleet.dstack.yml", "-y"])[1] == 0
    yield made
    site.close()


def get(stage: Virtual, url: str, status: int = 200) -> bytes:
    found, body = stage.site.request("GET", f"/api/v1/{url}", {"Authorization": f"Bearer {ADMIN}"}, b"")
    assert found == status, body
    return body


def costs(stage: Virtual, query: str = "", of: str = "projects/main/") -> Any:
    return json.loads(get(stage, f"{of}costs{query}"))


def trained(stage: Virtual, seconds: int = 4200) -> None:
    assert stage.dstack(["apply", "-f", "task.dstack.yml", "-y", "-d"])[1] == 0
    stage.site.time.pass_(seconds)


def days(stage: Virtual) -> list[CostDay]:
    store = stage.site.root.ports.store  # type: ignore[attr-defined]
    found = every(store, keys.project(project_id(stage)).pk, keys.COST_DAYS)
    return [nouns.read(CostDay, record) for record in found]


def test_a_job_is_its_users_and_the_time_until_its_machine_went_was_idle(past: Virtual) -> None:
    found = costs(past)
    ann, idle = found["items"]
    assert (ann["name"], idle["name"]) == ("admin", None)
    assert ann["usd"] == pytest.approx(0.46 * 3000 / 3600, rel=0.02) and ann["idle_usd"] == 0
    assert idle["usd"] == idle["idle_usd"] == pytest.approx(0.46 * 605 / 3600, rel=0.05)
    assert found["usd"] == pytest.approx(ann["usd"] + idle["usd"]) and found["idle_usd"] == idle["usd"]
    assert found["gpu_hours"] == pytest.approx(found["usd"] / 0.46, rel=0.01)
    run = json.loads(get(past, "projects/main/runs/train"))
    assert run["cost_usd"] == pytest.approx(ann["usd"], rel=0.01), "the run's own page says the same"


def test_by_fleet_gpu_and_project_it_is_the_same_money(past: Virtual) -> None:
    whole = costs(past)["usd"]
    for query, of, name in (
        ("?by=fleet", "projects/main/", "pool"),
        ("?by=gpu", "projects/main/", "T4"),
        ("", "", "main"),
    ):
        found = costs(past, query, of)
        assert [(each["name"], each["usd"]) for each in found["items"]] == [(name, whole)]
        assert found["items"][0]["idle_usd"] == found["idle_usd"] > 0


def test_hours_add_up_to_days(past: Virtual) -> None:
    by_day, by_hour = costs(past, "?by=fleet"), costs(past, "?by=fleet&step=hour")
    (item,) = by_hour["items"]
    assert len(item["steps"]) >= 2 and item["usd"] == by_day["items"][0]["usd"]
    assert sum(step["usd"] for step in item["steps"]) == pytest.approx(item["usd"], abs=1e-3)


def test_what_runs_now_is_counted_until_now(stage: Virtual) -> None:
    trained(stage, 1800)
    before = costs(stage)["usd"]
    stage.site.time.pass_(600)
    assert costs(stage)["usd"] == pytest.approx(before + 0.46 / 6, rel=0.02)


@dataclass
class Later:
    """The clock of somebody who counts later: nothing happens until then."""

    at: int

    def now(self) -> int:
        return self.at


def project_id(stage: Virtual) -> str:
    (project,) = every(stage.site.root.ports.store, "projects", "name/")  # type: ignore[attr-defined]
    return nouns.pointed(project)


def close(stage: Virtual, later: int) -> int:
    """Count the days that are over by then."""
    root = stage.site.root  # type: ignore[attr-defined]
    return close_days(root.plane.read, Later(root.ports.clock.now() + later), project_id(stage))


def test_a_day_is_counted_once_when_it_is_over_and_reads_the_same(stage: Virtual) -> None:
    trained(stage)
    before = costs(stage, "?by=user")
    assert close(stage, 0) == 0 and days(stage) == [], "the day isn't over"
    stage.site.root.erase()  # type: ignore[attr-defined]
    assert days(stage) == []
    assert close(stage, DAY) == 1 and close(stage, DAY) == 0
    (day,) = days(stage)
    assert {row.user for row in day.rows} == {"", "admin"}
    assert costs(stage, "?by=user")["items"] == before["items"]


def test_counted_days_outlive_the_events_the_runs_and_the_fleets(stage: Virtual) -> None:
    trained(stage)
    before = costs(stage, "?by=fleet")["items"]
    close(stage, DAY)
    store = stage.site.root.ports.store  # type: ignore[attr-defined]
    gone = [record.key for record in all_of(store, "main", keys.events_of(project_id(stage)))]
    for start in range(0, len(gone), 100):
        store.commit([Delete(key) for key in gone[start : start + 100]])
    assert costs(stage, "?by=fleet")["items"] == before


def test_a_machine_that_began_before_the_time_is_counted_though_its_history_has_nothing_of_it(stage: Virtual) -> None:
    """Whether it is still there, or was given back since."""
    trained(stage, 1800)
    root = stage.site.root  # type: ignore[attr-defined]
    assert close(stage, 3 * DAY) == 3
    first, second, third = days(stage)
    assert sum(row.dollars for row in second.rows) == pytest.approx(24 * 0.46, rel=0.01)
    assert [row.user for row in second.rows] == [row.user for row in third.rows] == ["admin"] and first.rows
    now = root.ports.clock.now()
    since = now - now % HOUR + HOUR
    stage.site.time.pass_(4800)
    read, id_, until = root.plane.read, project_id(stage), since + 2 * HOUR
    found = hours(read, id_, since, until, root.ports.clock.now())
    whole = hours(read, id_, since - 3 * HOUR, until, root.ports.clock.now())
    assert {each.user for each in found} == {"admin", ""}
    assert found == [each for each in whole if each.at >= since] != whole


def test_a_server_that_was_off_for_long_counts_a_month_back(stage: Virtual) -> None:
    assert close(stage, 70 * DAY) == FIRST // DAY


def test_a_run_that_is_gone_leaves_its_costs_to_others(stage: Virtual) -> None:
    trained(stage)
    store = stage.site.root.ports.store  # type: ignore[attr-defined]
    (run,) = store.query("gsi1", keys.runs_of(project_id(stage))).records
    store.commit([Delete(keys.run(nouns.read(Run, run).id))])
    assert {each["name"] for each in costs(stage)["items"]} == {"(others)", None}


def test_the_month_has_a_forecast_and_the_project_its_budget(stage: Virtual) -> None:
    trained(stage)
    stage.site.call("/api/projects/main/set_quota", {"money": 25})
    found = costs(stage)
    assert found["budget_usd_per_day"] == 25 and costs(stage, "", "")["budget_usd_per_day"] is None
    month = found["month"]
    assert month["usd"] == found["usd"] and month["forecast_usd"] > month["usd"]
    assert month["since"].endswith("01T00:00:00+00:00") and month["until"].endswith("01T00:00:00+00:00")


def test_a_spreadsheet_has_a_line_for_each_name_and_day(past: Virtual) -> None:
    lines = get(past, "projects/main/costs.csv?by=fleet").decode().splitlines()
    assert lines[0] == "at,fleet,usd,idle_usd,gpu_hours,idle_gpu_hours" and len(lines) == 2
    assert lines[1].split(",")[1] == "pool"
    assert get(past, "costs.csv").decode().splitlines()[0].startswith("at,project,")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "begins after its end"),
        ("?since=2024-01-01T00:00:00Z&until=2026-01-01T00:00:00Z", "at most 400 days"),
        ("?step=hour&since=2026-01-01T00:00:00Z&until=2026-02-01T00:00:00Z", "hour by hour at most 8 days"),
        ("?since=1970-01-01T00:00:00Z&until=1970-02-01T00:00:00Z", "kept for 400 days"),
        ("?until=1990-01-01T00:00:00Z", '"until"'),
        ("?since=2049-01-01T00:00:00Z&until=2049-01-03T00:00:00Z", "in the future"),
        ("?until=2049-01-01T00:00:00Z", "in the future"),
        ("?by=cat", "by"),
        ("?step=year", "step"),
        ("?sincce=2024-01-01T00:00:00Z", "sincce"),
    ],
)
def test_a_query_that_cant_be_answered_is_refused_with_why(past: Virtual, query: str, why: str) -> None:
    assert why in get(past, f"projects/main/costs{query}", 422).decode()
