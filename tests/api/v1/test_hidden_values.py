"""A spec that was read without its values is written back with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from chalicelib.domain.runs import RunStatus
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import ProjectRole
from chalicelib.store import nouns
from chalicelib.store.sealed_specs import of_fleet, opened
from chalicelib.usecases.machines import fleets
from chalicelib.usecases.runs import runs
from tests.api.rig import Rig
from tests.api.v1.bodies import FLEET
from tests.api.v1.rest import TASK, Client
from tests.hosts.bad_host import KEY

SERVICE = {**TASK, "type": "service", "port": 80, "image": "i", "gateway": False}
NODES = {"min": 0, "target": 0, "max": 5}
ENVS: list[Any] = [{"A": "secret", "B": "b"}, ["A=secret", "B=b"]]
HIDDEN = "(hidden)"


@pytest.fixture
def owner(rig: Rig) -> Client:
    return Client.of(rig)


@pytest.fixture
def other(rig: Rig, owner: Client) -> Client:
    return replace(owner, token=rig.user("ann", ProjectRole.admin))


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize(
    ("noun", "spec", "change"), [("runs", SERVICE, {"priority": 4}), ("fleets", FLEET, {"nodes": NODES})]
)
def test_a_change_by_another_member_leaves_the_values(
    owner: Client, other: Client, noun: str, spec: dict[str, Any], change: dict[str, Any], env: Any
) -> None:
    url = f"/api/v1/projects/{owner.project}/{noun}/thing/spec"
    owner.ok("PUT", url, {**spec, "env": env}, status=201)
    before, read = owner.ok("GET", url), other.call("GET", url)
    assert b"secret" not in read.body and HIDDEN.encode() in read.body
    other.ok("PUT", url, {**orjson.loads(read.body), **change}, if_match=read.headers["ETag"])
    after = owner.ok("GET", url)
    assert after["env"] == before["env"] and after != before
    assert other.ok("GET", url)["env"] == orjson.loads(read.body)["env"], "and the other still doesn't see them"


def test_a_run_that_has_ended_is_submitted_again_with_its_values(rig: Rig, owner: Client, other: Client) -> None:
    url, store = f"{owner.runs}/one/spec", rig.world.plane.store
    owner.ok("PUT", url, {**TASK, "env": ENVS[0]}, status=201)
    first = runs.named(store, rig.project, "one")
    assert first is not None
    store.commit([nouns.put(first.with_(status=RunStatus.done, due_at=None))])
    other.ok("PUT", url, other.ok("GET", url), status=201)
    assert other.ok("GET", url)["env"] == ENVS[0], "it is the other's own now"


@pytest.mark.parametrize(("env", "shown"), [({"A": "secret"}, ["A=(hidden)"]), (["A=secret"], {"A": HIDDEN})])
def test_values_are_found_in_either_form(owner: Client, env: Any, shown: Any) -> None:
    url = f"{owner.runs}/one/spec"
    owner.ok("PUT", url, {**SERVICE, "env": env}, status=201)
    assert "secret" in str(owner.ok("PUT", url, {**SERVICE, "env": shown})["env"])


@pytest.mark.parametrize("env", [{"A": "a", "B": HIDDEN}, ["A=a", "B=(hidden)"]])
@pytest.mark.parametrize(("noun", "spec"), [("runs", TASK), ("fleets", FLEET)])
def test_a_value_that_isnt_known_is_refused(owner: Client, noun: str, spec: dict[str, Any], env: Any) -> None:
    path = f"/api/v1/projects/{owner.project}/{noun}"
    for method, url in (("POST", path), ("PUT", f"{path}/one/spec")):
        status, code, problem = owner.refused(method, url, {**spec, "env": env})
        assert (status, code, problem["errors"][0]["pointer"]) == (422, "invalid", "/env/B")
    owner.ok("PUT", f"{path}/one/spec", {**spec, "env": {"A": "a"}}, status=201)
    assert owner.refused("PUT", f"{path}/one/spec", {**spec, "env": env})[0] == 422


def test_a_password_goes_only_with_its_owner(owner: Client, other: Client) -> None:
    """Whoever changes the image would send it to another registry."""
    url = f"{owner.runs}/one/spec"
    owner.ok("PUT", url, {**SERVICE, "registry_auth": {"username": "me", "password": "secret"}}, status=201)
    shown = owner.ok("GET", url)
    assert shown["registry_auth"]["password"] == HIDDEN
    owner.ok("PUT", url, {**shown, "priority": 3})
    assert HIDDEN in other.refused("PUT", url, {**other.ok("GET", url), "priority": 4})[2]["detail"]


def test_a_fleet_of_hosts_keeps_its_key(rig: Rig, owner: Client) -> None:
    url = f"/api/v1/projects/{owner.project}/fleets/lab/spec"
    ssh = {"user": "u", "ssh_key": {"public": "", "private": KEY}, "hosts": ["10.0.0.1"]}
    owner.ok("PUT", url, {"type": "fleet", "ssh_config": ssh}, status=201)
    read = owner.ok("GET", url)
    assert read["ssh_config"]["ssh_key"]["private"] == HIDDEN
    assert owner.ok("PUT", url, read) == read
    plane = rig.world.plane
    fleet = fleets.named(plane.store, rig.project, "lab")
    assert fleet is not None
    stored = orjson.loads(plane.read.fleet_row(fleet).spec)
    spec = opened(plane.seal, FleetSpec, stored, of_fleet(fleet.id))
    assert spec["configuration"]["ssh_config"]["ssh_key"]["private"] == KEY
