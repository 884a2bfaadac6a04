"""Passwords and private keys in specs: sealed in the store, shown in no response, and available where they are
needed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.runs import RunBody
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import ProjectRole, User
from chalicelib.store import nouns, sealed_specs
from chalicelib.usecases import specs
from chalicelib.usecases.machines import fleet_plans
from chalicelib.usecases.runs.plans import PlanView, get_plan
from tests.api.rig import ADMIN, Rig, submit, task
from tests.api.test_agent_routes import Host
from tests.api.test_runs import finish, run_of
from tests.store.test_sealed_specs import FLEET
from tests.usecases.cluster import FACTS
from tests.world.time import NOW

PASSWORD = "hush-hush"
HIDDEN = {"username": "me", "password": "(hidden)"}


def private(password: str = PASSWORD, **more: Any) -> dict[str, Any]:
    return task(image="registry.example/private", registry_auth={"username": "me", "password": password}, **more)


def plan_of(rig: Rig, spec: dict[str, Any]) -> Any:
    return rig.ok("P/runs/get_plan", {"run_spec": spec})


def on_disk(rig: Rig) -> bytes:
    return b"".join(path.read_bytes() for path in rig.world.folder.rglob("*") if path.is_file())


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_plan_shows_no_password_and_is_applied_as_it_came(rig: Rig) -> None:
    plan = plan_of(rig, private())
    assert PASSWORD.encode() not in orjson.dumps(plan)
    assert plan["effective_run_spec"]["configuration"]["registry_auth"] == HIDDEN
    assert plan["job_plans"][0]["job_spec"]["registry_auth"] == HIDDEN
    made = submit(rig, plan["run_spec"])
    body = nouns.find(rig.world.plane.store, RunBody, keys.run_body(made["id"], 0))
    assert body is not None
    auth = sealed_specs.run_spec(rig.world.plane.seal, made["id"], body.run_spec).configuration.registry_auth
    assert auth is not None and auth.password == PASSWORD


def test_nobody_is_shown_the_password_and_no_disk_has_it(rig: Rig) -> None:
    made = submit(rig, private())
    assert made["run_spec"]["configuration"]["registry_auth"] == made["jobs"][0]["job_spec"]["registry_auth"] == HIDDEN
    plan = plan_of(rig, private(priority=5))
    del plan["run_spec"]  # goes back to the control plane, with what is sealed for whoever asked
    listed = [rig.ok("P/runs/get", {"run_name": "hello"}), rig.ok("/api/runs/list", {}), rig.ok("/api/events/list", {})]
    for answer in (made, plan, *listed):
        assert PASSWORD.encode() not in orjson.dumps(answer) and b"sealed" not in orjson.dumps(answer)
    assert b"registry.example" in on_disk(rig) and PASSWORD.encode() not in on_disk(rig)


def test_the_agent_is_sent_the_password(rig: Rig) -> None:
    host = Host(rig)
    host.sync(facts=FACTS)
    host.place(submit(rig, private()))
    (wanted,) = host.sync()["tasks"]
    assert wanted["spec"]["registry_auth"] == {"username": "me", "password": PASSWORD}


def test_an_unchanged_password_is_no_change_and_another_one_is(rig: Rig) -> None:
    first = submit(rig, private())
    assert plan_of(rig, private())["action"] == "update"
    assert submit(rig, private())["deployment_num"] == 0
    changed = submit(rig, private(priority=7))
    assert (changed["id"], changed["deployment_num"]) == (first["id"], 1)
    assert changed["run_spec"]["configuration"]["registry_auth"] == HIDDEN
    other = private("quite-another", priority=7)
    assert plan_of(rig, other)["action"] == "create"
    error = rig.refused("P/runs/apply", {"plan": {"run_spec": other}})
    assert "registry_auth" in error and "quite-another" not in error and PASSWORD not in error
    assert PASSWORD.encode() not in on_disk(rig)
    finish(rig, first["id"])
    assert run_of(rig, first["id"]).finished
    assert submit(rig, other)["id"] != first["id"]


def test_what_was_made_for_one_user_is_refused_from_another(rig: Rig) -> None:
    plan = plan_of(rig, private())
    token = rig.user("bob", ProjectRole.user)
    assert "Plan it again" in rig.refused("P/runs/apply", {"plan": {"run_spec": plan["run_spec"]}}, token=token)
    made = rig.ok("P/runs/apply", {"plan": {"run_spec": private()}}, token=token)
    assert "in place of a secret" in rig.refused("P/runs/apply", {"plan": {"run_spec": made["run_spec"]}}, token=token)


@pytest.mark.parametrize(
    "wrong", [PASSWORD, [PASSWORD], {"username": "u", "password": [PASSWORD]}, {"password": PASSWORD}]
)
def test_what_stands_in_the_place_of_a_password_is_not_repeated(rig: Rig, wrong: Any) -> None:
    error = rig.refused("P/runs/get_plan", {"run_spec": task(registry_auth=wrong)})
    assert "registry_auth" in error and PASSWORD not in error


def test_a_plan_holds_no_password_that_could_be_logged(rig: Rig) -> None:
    found = nouns.find_target(rig.world.plane.store, keys.user_name("admin"))
    assert found is not None
    user = nouns.find(rig.world.plane.store, User, keys.user(found[0]))
    assert user is not None
    plan = get_plan(rig.world.plane, user, rig.project, private(), PlanView())
    assert "registry.example" in repr(plan) and PASSWORD not in repr(plan)


# --- variables ------------------------------------------------------------------------------------------------------

ENV = {"HF_TOKEN": "hf-hush", "EMPTY": "", "KEY": "${{ secrets.key }}", "MIXED": "${{ secrets.key }} hf-hush"}
NAMES = {"HF_TOKEN": "(hidden)", "EMPTY": "", "KEY": "${{ secrets.key }}", "MIXED": "(hidden)"}


def listed(rig: Rig, token: str, **filters: Any) -> Any:
    (run,) = rig.ok("/api/runs/list", filters, token=token)
    return run


@pytest.mark.parametrize("role", ProjectRole)
def test_a_list_shows_the_variables_of_others_without_their_values(rig: Rig, role: ProjectRole) -> None:
    rig.ok("P/secrets/create_or_update", {"name": "key", "value": "v"})
    bob = rig.user("bob", role)
    submit(rig, task(env=ENV))
    run = listed(rig, bob)
    assert run["run_spec"]["configuration"]["env"] == run["jobs"][0]["job_spec"]["env"] == NAMES
    assert b"hf-hush" not in orjson.dumps([run, listed(rig, bob, include_jobs=False)])


def test_a_list_shows_the_variables_of_ones_own_runs_whole(rig: Rig) -> None:
    bob = rig.user("bob", ProjectRole.user)
    rig.ok("P/secrets/create_or_update", {"name": "key", "value": "v"})
    rig.ok("P/runs/apply", {"plan": {"run_spec": task(env=ENV)}}, token=bob)
    run = listed(rig, bob)
    assert run["run_spec"]["configuration"]["env"] == run["jobs"][0]["job_spec"]["env"] == ENV
    assert b"hf-hush" not in orjson.dumps(listed(rig, ADMIN))  # not even for an admin of everything


def test_variables_that_came_as_a_list_are_hidden_too(rig: Rig) -> None:
    bob = rig.user("bob", ProjectRole.user)
    submit(rig, task(env=["HF_TOKEN=hf-hush=", "EMPTY="]))
    run = listed(rig, bob)
    assert run["run_spec"]["configuration"]["env"] == ["HF_TOKEN=(hidden)", "EMPTY="]
    assert b"hf-hush" not in orjson.dumps(run)


def test_a_run_asked_for_by_name_has_its_variables_so_that_an_unchanged_file_is_no_change(rig: Rig) -> None:
    bob = rig.user("bob", ProjectRole.user)
    submit(rig, task(env={"A": "1"}))
    shown = rig.ok("P/runs/get", {"run_name": "hello"}, token=bob)
    assert shown["run_spec"]["configuration"]["env"] == {"A": "1"}
    plan = rig.ok("P/runs/get_plan", {"run_spec": task(env={"A": "1"})}, token=bob)
    assert plan["action"] == "update"
    assert plan["current_resource"]["run_spec"]["configuration"]["env"] == {"A": "1"}


# --- fleets ---------------------------------------------------------------------------------------------------------


def ssh_fleet(rig: Rig) -> Fleet:
    """An SSH fleet as it will be stored: applying one is refused so far."""
    names = {"id": rig.world.plane.random_id(), "project_id": rig.project.id, "name": "lab"}
    fleet = Fleet(**names, created_at=NOW, last_processed_at=NOW)
    pointer = nouns.pointer(keys.fleet_name(rig.project.id, fleet.name), fleet.id)
    body = fleet_plans.stored_body(rig.world.plane, fleet, FLEET)
    rig.world.plane.store.commit([nouns.put(fleet), nouns.put(body), pointer])
    return fleet


def test_a_fleets_keys_are_sealed_on_disk_and_shown_in_no_answer(rig: Rig) -> None:
    fleet = ssh_fleet(rig)
    listed = rig.ok("P/fleets/list") + rig.ok("/api/fleets/list", {})
    for answer in (rig.ok("P/fleets/get", {"name": "lab"}), *listed):
        text = orjson.dumps(answer)
        assert b"hush" not in text and b"sealed" not in text
        ssh = answer["spec"]["configuration"]["ssh_config"]
        assert ssh["ssh_key"] == {"public": "ssh-ed25519 all", "private": None}
        assert ssh["hosts"][0] == "10.0.0.1" and ssh["hosts"][1]["proxy_jump"]["ssh_key"]["private"] is None
    assert b"ssh_config" in on_disk(rig) and b"hush" not in on_disk(rig)
    row = rig.world.plane.read.fleet_row(fleet)
    opened = sealed_specs.fleet_spec(rig.world.plane.seal, fleet.id, row.spec)
    assert opened == FleetSpec.model_validate(FLEET) != FleetSpec.model_validate_json(row.spec)


def test_lists_of_fleets_show_variables_by_their_names(rig: Rig) -> None:
    """Nobody owns a fleet, so nobody's own are whole; a fleet that is asked for by name has them, as a run has."""
    fleet = ssh_fleet(rig)
    body = nouns.find(rig.world.plane.store, FleetBody, keys.fleet_body(fleet.id, 0))
    assert body is not None
    spec = orjson.loads(body.spec)
    spec["configuration"]["env"] = {"TOKEN": "t-0-k", "EMPTY": ""}
    rig.save(body.with_(spec=orjson.dumps(spec).decode()))
    for listed in (*rig.ok("P/fleets/list"), *rig.ok("/api/fleets/list", {})):
        assert listed["spec"]["configuration"]["env"] == {"TOKEN": "(hidden)", "EMPTY": ""}
    found = rig.ok("P/fleets/get", {"name": "lab"})
    assert found["spec"]["configuration"]["env"] == {"TOKEN": "t-0-k", "EMPTY": ""}


def test_an_unchanged_key_is_no_change_of_the_hosts_and_another_one_is(rig: Rig) -> None:
    fleet = ssh_fleet(rig)
    row = rig.world.plane.read.fleet_row(fleet)
    opened = sealed_specs.fleet_spec(rig.world.plane.seal, fleet.id, row.spec)
    assert specs.changed_fields(opened, FleetSpec.model_validate(FLEET)) == []
    other = orjson.loads(orjson.dumps(FLEET).replace(b"BEGIN two", b"BEGIN three"))
    assert specs.changed_fields(opened, FleetSpec.model_validate(other)) == ["configuration.ssh_config"]


def test_a_fleet_stays_the_one_a_client_saw_whose_keys_it_never_saw(rig: Rig) -> None:
    ssh_fleet(rig)
    seen = rig.ok("P/fleets/get", {"name": "lab"})
    spec = {"configuration": {"type": "fleet", "name": "lab", "nodes": 1}}
    body = {"plan": {"spec": spec, "current_resource": {"id": seen["id"], "spec": seen["spec"]}}}
    assert "can't be changed in place" in rig.refused("P/fleets/apply", body)
    seen["spec"]["configuration"]["ssh_config"]["user"] = "somebody"
    body["plan"]["current_resource"] = {"id": seen["id"], "spec": seen["spec"]}
    assert "was changed since this plan" in rig.refused("P/fleets/apply", body)


@pytest.mark.parametrize("path", ["P/fleets/get_plan", "P/fleets/apply"])
def test_a_refusal_repeats_no_key(rig: Rig, path: str) -> None:
    def refused(spec: dict[str, Any]) -> str:
        return rig.refused(path, {"spec": spec} if path.endswith("get_plan") else {"plan": {"spec": spec}})

    error = refused(FLEET)
    assert "ssh_config" in error and "BEGIN" not in error and "hush" not in error
    for wrong in ("hush", {"public": "p", "private": ["hush"]}, {"private": "hush"}):
        error = refused({"configuration": {"type": "fleet", "ssh_config": {"hosts": ["a"], "ssh_key": wrong}}})
        assert "ssh_key" in error and "hush" not in error


def test_events_of_a_fleet_repeat_no_key(rig: Rig) -> None:
    ssh_fleet(rig)
    rig.ok("P/fleets/delete", {"names": ["lab"]})
    page = rig.world.plane.store.query("main", f"events/{rig.project.id}")
    events = [nouns.read(Event, record) for record in page.records]
    assert any(target.name == "lab" for event in events for target in event.targets)
    assert "hush" not in repr(events)
