"""What an installation costs: the counts of what drives its bill, and who may see them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.billing.plane_rates import CHANGES, RATES
from chalicelib.domain.instants import DAY
from chalicelib.domain.runs import RunBody, RunStatus
from chalicelib.domain.services import Traffic, door_of
from chalicelib.domain.tenants import ProjectRole
from chalicelib.usecases.operator import costs
from chalicelib.usecases.pace import EMBEDDED
from tests.api.rig import Rig, submit, task
from tests.world import gateway_seats
from tests.world import nouns as b


def test_what_a_server_costs_is_shown_to_its_admins_where_calls_are_billed(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    alone = rig.ok("/api/server/get_cost")
    submit(rig, task())
    found = rig.ok("/api/server/get_cost")
    assert found["pace"] == {"fast": 2.0, "slow": 60.0, "presence": 270.0, "log": 900.0}
    rig.save(*(b.presence_of(b.host(number, b.fleet("lab")), watched=True) for number in (0, 1)))
    assert rig.ok("/api/server/get_cost")["counts"]["an instance"] == 2
    assert found["billed"] and found["counts"] == {"the schedules": 1, "an account": 1, "an instance": 0, "a run": 1}
    assert sum(line["dollars"] for line in found["lines"]) > sum(line["dollars"] for line in alone["lines"])
    assert rig.call("/api/server/get_cost", token=rig.user("chief", ProjectRole.admin)).status == 403
    rig.world.plane.store.close()


def test_runs_on_several_nodes_add_their_nodes_and_their_starts(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    for name, nodes in (("one", 1), ("two", 2), ("four", 4)):
        spec = task(name)
        submit(rig, {**spec, "configuration": {**spec["configuration"], "nodes": nodes}})
    found = rig.ok("/api/server/get_cost")
    added = {"a run": 3, "a further node of a run": 4, "a start on several nodes": 2}
    assert found["counts"] == {"the schedules": 1, "an account": 1, "an instance": 0, **added}
    (transitions,) = (line for line in found["lines"] if line["what"] == "state transitions")
    assert transitions["amount"] == 2 * RATES["a start on several nodes"]["state transitions"]
    rig.world.plane.store.close()


def test_runs_of_the_last_thirty_days_are_counted(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    for age in (0, 30, 31):
        at = rig.world.at - age * DAY
        rig.save(b.run(f"run-{age}", status=RunStatus.done, submitted_at=at, project_id=rig.project.id))
    assert rig.ok("/api/server/get_cost")["counts"]["a run"] == 2
    rig.world.plane.store.close()


def test_of_many_runs_the_newest_tell_how_many_come_in_a_month(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "MOST", 4)
    rig = Rig.at(tmp_path)
    for age in range(1, 10):
        at = rig.world.at - age * DAY
        rig.save(b.run(f"run-{age}", status=RunStatus.done, submitted_at=at, project_id=rig.project.id))
    assert rig.ok("/api/server/get_cost")["counts"]["a run"] == 4 * 30 / 4
    rig.world.plane.store.close()


def test_each_start_by_a_schedule_counts_as_a_run(tmp_path: Path) -> None:
    """Of the last thirty days, even if the run was submitted before them."""
    rig = Rig.at(tmp_path)
    for name, age, starts, nodes in (("young", 10, 10, 2), ("old", 60, 120, 1)):
        since = {"submitted_at": b.NOW - age * DAY, "triggered_at": b.NOW, "project_id": rig.project.id}
        run = b.run(name, status=RunStatus.pending, **since)
        body = RunBody(run_id=run.id, run_spec="{}", job_specs=("{}",), nodes=(nodes,))
        rig.save(run, body, *(b.job(run, number) for number in (0, starts - 1)))
    counts = rig.ok("/api/server/get_cost")["counts"]
    assert counts["a run"] == pytest.approx(10 + 120 / 2)
    assert (counts["a further node of a run"], counts["a start on several nodes"]) == (10, 10)
    rig.world.plane.store.close()


def test_what_a_bus_costs_is_part_of_it_where_there_is_one(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    submit(rig, task())
    without = rig.ok("/api/server/get_cost")
    assert not [line for line in without["lines"] if line["driver"] == "a state change"]
    announcing = Rig(replace(rig.world, plane=replace(rig.world.plane, announces=True)), rig.project)
    found = announcing.ok("/api/server/get_cost")
    assert found["counts"] == {**without["counts"], "a state change": CHANGES["a run"]}
    assert [line for line in found["lines"] if line["driver"] != "a state change"] == without["lines"]
    (bus_events,) = (line for line in found["lines"] if line["what"] == "bus events")
    assert (bus_events["price"], bus_events["dollars"]) == (1.0, round(CHANGES["a run"] / 1e6, 4))
    rig.world.plane.store.close()


def test_services_and_gateways_are_part_of_it(tmp_path: Path) -> None:
    rig, machine = Rig.at(tmp_path), b.host(0, b.fleet("edge"))
    gateway_seats.keep(rig.world.store, gateway_seats.gateway(rig.project.id, machine), machine)
    service = {"type": "service", "port": 80, "commands": ["serve"], "gateway": "edge"}
    runs = [submit(rig, {"run_name": name, "configuration": {**service, "replicas": 2}}) for name in ("one", "two")]
    for run, quiet in zip(runs, (False, True), strict=True):
        edge = rig.ok("P/gateways/get", {"name": "edge"})["id"]
        rig.save(Traffic(run_id=run["id"], door=door_of(edge, 0), at=b.NOW, quiet=quiet))
    counts = rig.ok("/api/server/get_cost")["counts"]
    assert [counts[each] for each in ("a service's replica", "a gateway's replica", "a busy service")] == [4, 1, 1]
    rig.world.plane.store.close()


def test_nobody_bills_a_server_of_ones_own(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path, pace=EMBEDDED)
    found = rig.ok("/api/server/get_cost")
    assert (found["billed"], found["lines"], found["total"]) == (False, [], 0)
    rig.world.plane.store.close()
