"""Gateways over the API: what is applied, shown, changed, refused and deleted, as its callers see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gateways import Gateway, GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.tenants import ProjectRole
from chalicelib.store import nouns
from tests.api.rig import Rig, fleet
from tests.api.test_fleets import add_instance, create
from tests.world import gateways as g
from tests.world.ports import accounts


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    found = Rig.at(tmp_path, backends=accounts(BackendFacts(name="aws", gateways=True), BackendFacts(name="vultr")))
    create(found, fleet("edge", nodes=None, ssh_config={"hosts": []}))
    return found


def configured(name: str | None = "door", **fields: Any) -> dict[str, Any]:
    configuration = {"type": "gateway", "name": name, "fleet": "edge", "domain": "example.com", **fields}
    return {key: value for key, value in configuration.items() if value != ""}


def apply_body(name: str | None = "door", /, **fields: Any) -> dict[str, Any]:
    return {"plan": {"spec": {"configuration": configured(name, **fields)}, "current_resource": None}, "force": False}


def made(rig: Rig, name: str | None = "door", /, **fields: Any) -> Any:
    return rig.ok("P/gateways/apply", apply_body(name, **fields))


def refused(rig: Rig, **fields: Any) -> str:
    return rig.refused("P/gateways/apply", apply_body(fields.pop("name", "door"), **fields))


def stored(rig: Rig, shown: Any) -> Gateway:
    found = nouns.find(rig.world.store, Gateway, keys.gateway(shown["id"]))
    assert found is not None
    return found


def listed(rig: Rig) -> dict[str, Any]:
    return {each["name"]: each for each in rig.ok("P/gateways/list", {"include_imported": True})}


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_a_new_gateway_is_shown_as_clients_expect(rig: Rig) -> None:
    shown = made(rig)
    assert {name: value for name, value in shown.items() if name not in ("id", "created_at", "configuration")} == {
        "name": "door",
        "project_name": "main",
        "status": "submitted",
        "status_message": None,
        "hostname": None,
        "wildcard_domain": "example.com",
        "default": True,
        "replicas": [],
        "backend": "remote",
        "region": "edge",
        "ip_address": None,
        "instance_id": None,
    }
    assert {name: shown["configuration"][name] for name in ("backend", "region", "fleet", "certificate")} == {
        "backend": "remote",
        "region": "edge",
        "fleet": "edge",
        "certificate": {"type": "lets-encrypt"},
    }
    assert rig.ok("P/gateways/get", {"name": "door"}) == {**shown, "certificates": []}
    assert listed(rig) == {"door": shown}
    assert rig.world.woken[-1] == stored(rig, shown).unit
    history = rig.ok("/api/events/list", {"target_gateways": [shown["id"]]})
    assert [(each["message"], each["targets"][0]["type"]) for each in history] == [("created", "gateway")]


def test_its_replicas_are_shown_with_what_they_say(rig: Rig) -> None:
    shown = made(rig)
    host = add_instance(rig, rig.ok("P/fleets/get", {"name": "edge"}), status=InstanceStatus.idle)
    of = g.carrying(stored(rig, shown), host.with_(hostname="10.0.0.1"), state=ReplicaState.provisioning)
    rig.save(of.with_(replicas=(of.replicas[0].with_(message="installing nginx"),), message="edge-0: installing nginx"))
    found = rig.ok("P/gateways/get", {"name": "door"})
    assert (found["status"], found["status_message"]) == ("provisioning", "edge-0: installing nginx")
    assert found["hostname"] == "10.0.0.1"
    (replica,) = found["replicas"]
    assert (replica["replica_num"], replica["hostname"], replica["status"]) == (0, "10.0.0.1", "provisioning")
    assert (replica["backend"], replica["region"], replica["status_message"]) == ("remote", "edge", "installing nginx")


def test_a_plan_says_what_would_happen(rig: Rig) -> None:
    spec = {"configuration": configured(), "configuration_path": "door.dstack.yml"}
    plan = rig.ok("P/gateways/get_plan", {"spec": spec})
    assert (plan["action"], plan["current_resource"], plan["user"]) == ("create", None, "admin")
    assert plan["spec"]["configuration_path"] == "door.dstack.yml"
    shown = rig.ok("P/gateways/apply", {"plan": {"spec": plan["spec"], "current_resource": None}, "force": False})
    plan = rig.ok("P/gateways/get_plan", {"spec": spec})
    assert (plan["action"], plan["current_resource"], plan["changes"]) == ("update", shown, [])
    more = {"configuration": configured(domain="example.org", replicas=2, default=False)}
    assert rig.ok("P/gateways/get_plan", {"spec": more})["changes"] == ["default", "domain", "replicas"]
    other = {"configuration": configured(http_port=8080)}
    assert rig.ok("P/gateways/get_plan", {"spec": other})["action"] == "create"


def test_the_plan_says_of_one_without_a_certificate_what_it_is_good_for(rig: Rig) -> None:
    for certificate, remarked in (({"type": "lets-encrypt"}, []), (None, ["Without a `certificate`"])):
        spec = {"configuration": configured(certificate=certificate)}
        for _ in ("before it is there", "and then"):
            remarks = rig.ok("P/gateways/get_plan", {"spec": spec})["remarks"]
            assert [each.partition(",")[0] for each in remarks] == remarked
            made(rig, f"door-{len(remarked)}", certificate=certificate)
            spec["configuration"]["name"] = f"door-{len(remarked)}"


def test_the_path_of_its_file_comes_back_with_the_plan(rig: Rig) -> None:
    spec = {"configuration": configured(), "configuration_path": "door.dstack.yml"}
    plan = rig.ok("P/gateways/get_plan", {"spec": spec})
    assert plan["effective_spec"]["configuration_path"] == plan["spec"]["configuration_path"] == "door.dstack.yml"


# --- fields -----------------------------------------------------------------------------------------------------------

Check = Callable[[Gateway, Any], Any]
AWS = {"fleet": "", "backend": "aws", "region": "eu-1"}

# field: what is written, what the record or the wire then says, and that it isn't so without it
CASES: dict[str, tuple[dict[str, Any], Check, Any]] = {
    "type": ({"type": "gateway"}, lambda of, wire: wire["configuration"]["type"], "gateway"),
    "name": ({"name": "edge-door"}, lambda of, wire: of.name, "edge-door"),
    "default": ({"default": False}, lambda of, wire: wire["default"], False),
    "fleet": ({"fleet": "edge"}, lambda of, wire: of.fleet, "edge"),
    "backend": (AWS, lambda of, wire: (of.backend, of.fleet), ("aws", "")),
    "region": (AWS, lambda of, wire: of.region, "eu-1"),
    "domain": ({"domain": "*.${{ run.project_name }}.Example.org"}, lambda of, wire: of.domain, "main.example.org"),
    "http_port": ({"http_port": 8080}, lambda of, wire: of.http_port, 8080),
    "https_port": ({"https_port": 8443}, lambda of, wire: of.https_port, 8443),
    "replicas": ({"replicas": 3}, lambda of, wire: of.wanted, 3),
    "certificate.type": ({"certificate": None}, lambda of, wire: of.https_port, None),
}


@pytest.mark.parametrize("name", CASES)
def test_field(rig: Rig, name: str) -> None:
    fields, shows, expected = CASES[name]
    shown = rig.ok("P/gateways/create", {"configuration": configured(**fields)})
    assert shows(stored(rig, shown), shown) == expected
    if name not in ("type", "fleet"):
        other = Rig.ok(rig, "P/gateways/create", {"configuration": configured("plain", default=True)})
        assert shows(stored(rig, other), other) != expected


def test_the_fleet_can_be_written_as_older_clients_can_say_it(rig: Rig) -> None:
    shown = made(rig, fleet="", backend="remote", region="edge")
    assert stored(rig, shown).fleet == "edge" and shown["configuration"]["backend"] == "remote"
    assert rig.ok("P/gateways/get_plan", {"spec": {"configuration": configured()}})["action"] == "update"


def test_one_without_a_name_gets_one(rig: Rig) -> None:
    assert made(rig, None)["name"]


# --- the default ------------------------------------------------------------------------------------------------------


def defaults(rig: Rig) -> list[str]:
    return [name for name, each in listed(rig).items() if each["default"]]


def test_there_is_one_default(rig: Rig) -> None:
    made(rig, "one", default=False)
    assert defaults(rig) == []
    made(rig, "two")
    made(rig, "three")
    assert defaults(rig) == ["two"]
    made(rig, "four", default=True)
    assert defaults(rig) == ["four"]
    rig.ok("P/gateways/set_default", {"name": "one"})
    rig.ok("P/gateways/set_default", {"name": "one", "gateway_project": "main"})
    assert defaults(rig) == ["one"]
    made(rig, "two", default=True)
    assert defaults(rig) == ["two"]
    made(rig, "two", domain="example.org")  # left open: it stays
    assert defaults(rig) == ["two"]
    made(rig, "five", default=False)
    assert defaults(rig) == ["two"]
    made(rig, "two", domain="example.org", default=False)
    assert defaults(rig) == []
    error = rig.refused("P/gateways/set_default", {"name": "two", "gateway_project": "other"})
    assert "serves its own project only" in error


def test_a_default_that_is_being_deleted_isnt_one(rig: Rig) -> None:
    made(rig, "one")
    rig.ok("P/gateways/delete", {"names": ["one"]})
    assert rig.world.plane.read.default_gateway(rig.project.id) is None
    made(rig, "two")
    assert defaults(rig) == ["two"]
    assert "is being deleted" in rig.refused("P/gateways/set_default", {"name": "one"})


# --- changes ----------------------------------------------------------------------------------------------------------


def test_the_domain_and_the_replicas_change_in_place(rig: Rig) -> None:
    before = made(rig)
    after = made(rig, domain="example.org", replicas=2)
    assert after["id"] == before["id"] and after["wildcard_domain"] == "example.org"
    assert stored(rig, after).wanted == 2
    history = rig.ok("/api/events/list", {"target_gateways": [after["id"]]})
    assert history[0]["message"] == "changed: domain, replicas"
    version = stored(rig, after).version
    made(rig, domain="example.org", replicas=2)
    assert stored(rig, after).version == version  # nothing to do
    by_flag = rig.ok("P/gateways/set_wildcard_domain", {"name": "door", "wildcard_domain": "*.example.net"})
    assert (by_flag["wildcard_domain"], by_flag["configuration"]["domain"]) == ("example.net", "*.example.net")
    rig.ok("P/gateways/set_wildcard_domain", {"name": "door", "wildcard_domain": "*.example.net"})
    rig.world.clock.pass_(1)
    messages = [each["message"] for each in rig.ok("/api/events/list", {"target_gateways": [after["id"]]})]
    assert sorted(messages) == ["changed: domain", "changed: domain, replicas", "created"]


@pytest.mark.parametrize(("status", "expected"), [(GatewayStatus.running, None), (GatewayStatus.failed, "no nginx")])
def test_what_a_change_may_have_settled_is_said_no_more(rig: Rig, status: GatewayStatus, expected: str | None) -> None:
    of = stored(rig, made(rig, replicas=2))
    rig.save(of.with_(status=status, message="no nginx"))
    assert made(rig, replicas=1)["status_message"] == expected


def test_anything_else_needs_a_new_one(rig: Rig) -> None:
    made(rig)
    error = refused(rig, http_port=8080, certificate=None)
    assert error == (
        "There is a gateway door already, and this can't be changed in place: certificate, http_port. "
        "Delete it first (dstack gateway delete door) or choose another name."
    )
    assert "There is a gateway door already" in rig.refused("P/gateways/create", {"configuration": configured()})


def test_a_plan_that_is_out_of_date_is_refused(rig: Rig) -> None:
    seen = made(rig)
    made(rig, domain="example.org")
    spec = {"configuration": configured(replicas=2)}
    late = {"plan": {"spec": spec, "current_resource": seen}, "force": False}
    assert "was changed since this plan was made" in rig.refused("P/gateways/apply", late)
    assert rig.ok("P/gateways/apply", {**late, "force": True})["wildcard_domain"] == "example.com"
    now = rig.ok("P/gateways/get", {"name": "door"})
    rig.ok("P/gateways/apply", {"plan": {"spec": spec, "current_resource": now}, "force": False})
    other = {"plan": {"spec": {"configuration": configured("gone")}, "current_resource": seen}, "force": False}
    assert "was deleted since this plan was made" in rig.refused("P/gateways/apply", other)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fleet": "nowhere"}, "fleet: there is no fleet `nowhere` in this project"),
        ({"fleet": "other/edge"}, "fleet: `other/edge` is a fleet of another project"),
        ({"fleet": "", "backend": "remote", "region": "x"}, "region: there is no fleet `x` in this project"),
        ({"fleet": "pool"}, "fleet: the machines of the fleet `pool` are bought, so they come and go"),
        (
            {"fleet": "", "backend": "vultr", "region": "r"},
            "backend: gateways in the backend vultr aren't supported yet",
        ),
        (
            {"fleet": "", "backend": "gcp", "region": "r"},
            "backend: the backend gcp isn't configured for the project main",
        ),
        ({"fleet": ""}, "a gateway needs `fleet`, or `backend` and `region`"),
        ({"name": "No"}, "name: `No` can't be the name of a gateway"),
        ({"domain": "no_domain"}, "domain: `no_domain` isn't a domain"),
        ({"domain": "a..b"}, "domain: `a..b` isn't a domain"),
        ({"domain": "10.0.0.1"}, "domain: `10.0.0.1` isn't a domain"),
        ({"domain": "example.com:80"}, "domain: `example.com:80` isn't a domain"),
        ({"domain": "${{ secrets.d }}.example.com"}, "domain: `${{ secrets.d }}` isn't filled in here"),
        ({"domain": "${{ run.name }}.example.com"}, "there is `${{ run.project_name }}`"),
        ({**AWS, "region": "${{ env.R }}"}, "region: `${{ env.R }}` isn't filled in here"),
        ({"tags": {"a": "b"}}, "tags: `tags` is for machines that are bought for a gateway"),
        ({**AWS, "load_balancer": {"type": "alb"}}, "load_balancer: `load_balancer` isn't supported yet"),
        ({**AWS, "public_ip": False, "certificate": None}, "public_ip: `public_ip` isn't supported yet"),
    ],
)
def test_what_cant_be_is_refused_with_the_way_out(rig: Rig, fields: dict[str, Any], message: str) -> None:
    create(rig, fleet("pool"))
    found = refused(rig, **fields)
    assert message in found, found
    assert listed(rig) == {}


def test_its_backends_are_named(rig: Rig) -> None:
    found = refused(rig, fleet="", backend="vultr", region="r")
    assert "Backends with gateways: aws; or name an SSH fleet with `fleet`)" in found


def test_only_admins_of_the_project_make_gateways(rig: Rig) -> None:
    made(rig)
    for role in (ProjectRole.user, ProjectRole.manager):
        token = rig.user(role.value, role)
        assert len(rig.ok("P/gateways/list", token=token)) == 1
        assert rig.ok("P/gateways/get", {"name": "door"}, token=token)["name"] == "door"
        for path in ("get_plan", "apply", "create", "delete", "set_default", "set_wildcard_domain"):
            assert rig.call(f"/api/project/main/gateways/{path}", {}, token=token).status == 403


def test_another_projects_gateway_isnt_seen(rig: Rig) -> None:
    made(rig)
    rig.another_project("other")
    assert rig.ok("/api/project/other/gateways/list") == []
    assert "There is no gateway door in project other" in rig.refused(
        "/api/project/other/gateways/get", {"name": "door"}
    )


# --- delete -----------------------------------------------------------------------------------------------------------


def test_one_without_machines_is_deleted_by_the_next_pass(rig: Rig) -> None:
    shown = made(rig)
    rig.ok("P/gateways/delete", {"names": ["door", "door"]})
    of = stored(rig, shown)
    assert of.status is GatewayStatus.deleting
    assert listed(rig)["door"]["status"] == "submitted"
    assert refused(rig) == "The gateway door is being deleted. Wait until it is gone."
    assert "is being deleted" in rig.refused("P/gateways/create", {"configuration": configured()})
    rig.ok("P/gateways/delete", {"names": ["door"]})  # again: nothing more to do
    rig.save(of.with_(status=GatewayStatus.deleted, due_at=None))
    assert listed(rig) == {} and "There is no gateway" in rig.refused("P/gateways/get", {"name": "door"})
    assert made(rig)["id"] != shown["id"]


def test_one_that_is_gone_before_the_answer_is_sent_is_deleted(rig: Rig) -> None:
    """The reconciler doesn't wait for whoever asked."""
    shown = made(rig)

    def end(units: Iterable[str]) -> None:
        if shown["id"] in " ".join(units):
            rig.save(stored(rig, shown).with_(status=GatewayStatus.deleted, due_at=None))

    plane = replace(rig.world.plane, wake=end)
    replace(rig, world=replace(rig.world, plane=plane)).ok("P/gateways/delete", {"names": ["door"]})
    assert stored(rig, shown).deleted and listed(rig) == {}


def run_of(rig: Rig, name: str, **fields: Any) -> None:
    now = rig.world.clock.now()
    run = Run(
        id=rig.world.plane.random_id(),
        project_id=rig.project.id,
        name=name,
        user_id="u",
        user_name="u",
        submitted_at=now,
        last_processed_at=now,
        **fields,
    )
    rig.save(run)
    rig.world.store.commit([nouns.pointer(keys.run_name(rig.project.id, name), run.id)])


def test_one_in_use_is_kept(rig: Rig) -> None:
    shown = made(rig)
    run_of(rig, "llm", gateway_id=shown["id"])
    run_of(rig, "old", gateway_id=shown["id"], status=RunStatus.done)
    run_of(rig, "own")
    assert rig.refused("P/gateways/delete", {"names": ["door"]}) == (
        "The gateway door is in use by the service llm. "
        "Stop what uses it (dstack stop llm), or apply it with another `gateway`."
    )
    assert stored(rig, shown).status is GatewayStatus.submitted


def test_a_project_with_gateways_is_kept(rig: Rig) -> None:
    made(rig)
    for each in rig.world.plane.read.fleets(rig.project.id):
        rig.save(each.with_(deleted=True))
    assert "The project main has gateways" in rig.refused("/api/projects/delete", {"projects_names": ["main"]})


def test_a_host_that_carries_a_gateway_stays_in_its_fleet(rig: Rig) -> None:
    shown = made(rig)
    edge = rig.ok("P/fleets/get", {"name": "edge"})
    host = add_instance(rig, edge)
    rig.save(g.seated(stored(rig, shown), host.with_(version=1, due_at=1)))
    message = "in use by the gateway door. Delete the gateway first: dstack gateway delete door"
    assert message in rig.refused("P/fleets/delete", {"names": ["edge"]})
    assert message in rig.refused("P/fleets/delete_instances", {"name": "edge", "instance_nums": [0]})
    away = nouns.find(rig.world.store, Instance, keys.instance(host.id))
    assert away is not None
    rig.save(away.with_(unreachable_since=away.created_at))
    rig.ok("P/fleets/delete_instances", {"name": "edge", "instance_nums": [0]})
