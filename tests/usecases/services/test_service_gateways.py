"""The route of a service: its gateway and name, and what prevents it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway, GatewayStatus
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.errors import Refused
from chalicelib.store import nouns
from chalicelib.store.port import Put
from chalicelib.usecases.services import doors, service_gateways
from tests.api.rig import Rig, submit
from tests.world import gateway_seats


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.at(tmp_path)


def spec(name: str = "chat", **fields: Any) -> dict[str, Any]:
    return {
        "run_name": name,
        "configuration": {"type": "service", "port": 8000, "commands": ["serve"], **fields},
    }


def made(rig: Rig, name: str = "edge", *, default: bool = False, **fields: Any) -> Gateway:
    return gateway_seats.keep(
        rig.world.store, gateway_seats.gateway(rig.project.id, name=name, **fields), default=default
    )


def run_of(rig: Rig, name: str = "chat") -> Run:
    target = nouns.find_target(rig.world.store, keys.run_name(rig.project.id, name))
    run = None if target is None else nouns.find(rig.world.store, Run, keys.run(target[0]))
    assert run is not None
    return run


def test_the_server_says_where_a_service_is_that_is_at_a_gateway(rig: Rig) -> None:
    made(rig)
    submit(rig, spec(gateway="edge"))
    submit(rig, spec("here"))
    plane = rig.world.plane
    assert doors.named(plane, "main", "chat") is None
    assert doors.elsewhere(plane, "main", "chat") == "https://chat.example.test/"
    for project, run in (("main", "here"), ("main", "nobody"), ("nowhere", "chat")):
        assert doors.elsewhere(plane, project, run) == ""
    rig.ok("P/runs/stop", {"runs_names": ["chat"], "abort": True})
    assert doors.elsewhere(plane, "main", "chat") == ""


AT_THE_SERVER = "/proxy/services/main/chat/"


@pytest.mark.parametrize(
    ("fields", "default", "edge", "url"),
    [
        ({}, False, {}, AT_THE_SERVER),
        ({}, True, {}, "https://chat.example.test/"),
        ({"gateway": False}, True, {}, AT_THE_SERVER),
        ({"gateway": True}, True, {}, "https://chat.example.test/"),
        ({"gateway": "edge"}, False, {}, "https://chat.example.test/"),
        ({"gateway": "main/edge"}, False, {}, "https://chat.example.test/"),
        ({"gateway": "edge", "https": False}, False, {}, "http://chat.example.test/"),
        ({"gateway": "edge", "https": "auto"}, False, {}, "https://chat.example.test/"),
        ({"gateway": "edge", "https": "auto"}, False, {"written": {"certificate": None}}, "http://chat.example.test/"),
        ({"gateway": "edge", "https": True}, False, {"written": {"certificate": None}}, "https://chat.example.test/"),
        ({"gateway": "edge"}, False, {"http_port": 8080, "https_port": None}, "http://chat.example.test:8080/"),
        ({"gateway": "edge"}, False, {"https_port": 8443}, "https://chat.example.test:8443/"),
    ],
)
def test_a_service_is_where_its_configuration_says(
    rig: Rig, fields: dict[str, Any], default: bool, edge: dict[str, Any], url: str
) -> None:
    gateway = made(rig, default=default, **edge)
    service = submit(rig, spec(**fields, model="m"))["service"]
    assert (service["url"], service["model"]["base_url"]) == (url, f"{url}v1")
    assert run_of(rig).gateway_id == (None if url == AT_THE_SERVER else gateway.id)


@pytest.mark.parametrize(
    ("fields", "edge", "messages"),
    [
        ({"gateway": "other"}, {}, ("there is no gateway other", "write `gateway: edge`")),
        ({"gateway": True}, {}, ("no default gateway", "write `gateway: edge`")),
        ({"gateway": "far/edge"}, {}, ("another project", "write `gateway: edge`")),
        ({"gateway": "edge"}, {"domain": ""}, ("no domain", "dstack gateway update edge --domain")),
        ({"gateway": "edge"}, {"status": GatewayStatus.deleting}, ("being deleted", "name another")),
        (
            {"gateway": "edge", "https": True},
            {"https_port": None},
            ("no https", "create it again with a `certificate`"),
        ),
        ({"https": False}, {}, ("only gateways", "remove it")),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    rig: Rig, fields: dict[str, Any], edge: dict[str, Any], messages: tuple[str, str]
) -> None:
    made(rig, **edge)
    for path, body in (("get_plan", {"run_spec": spec(**fields)}), ("apply", {"plan": {"run_spec": spec(**fields)}})):
        error = rig.refused(f"P/runs/{path}", {**body, "force": False} if path == "apply" else body)
        assert all(message in error for message in messages), error
        assert error.startswith(("gateway: ", "https: "))


def test_who_names_another_gateway_is_told_which_there_are(rig: Rig) -> None:
    made(rig)
    body = {"run_spec": spec(gateway="nope")}
    assert rig.refused("P/runs/get_plan", body).endswith("(write `gateway: edge`)")
    made(rig, "west")
    assert rig.refused("P/runs/get_plan", body).endswith("(write `gateway: edge`, or one of west)")


def test_the_name_of_the_models_host_is_taken(rig: Rig) -> None:
    made(rig, default=True)
    assert "choose another name" in rig.refused("P/runs/get_plan", {"run_spec": spec("gateway")})
    submit(rig, spec("gateway", gateway=False))


def test_without_any_gateway_a_server_that_takes_no_requests_says_what_to_add(rig: Rig) -> None:
    rig.world.plane = replace(rig.world.plane, serves=False)
    assert "type: gateway" in rig.refused("P/runs/get_plan", {"run_spec": spec()})
    assert "type: gateway" in rig.refused("P/runs/get_plan", {"run_spec": spec(gateway=False)})
    assert "type: gateway" in rig.refused("P/runs/get_plan", {"run_spec": spec(gateway=True)})
    made(rig)
    assert "gateway: NAME" in rig.refused("P/runs/get_plan", {"run_spec": spec()})
    assert submit(rig, spec(gateway="edge"))["service"]["url"] == "https://chat.example.test/"


def test_a_service_moves_when_it_is_applied_and_not_before(rig: Rig) -> None:
    assert submit(rig, spec())["service"]["url"] == AT_THE_SERVER
    edge = made(rig, default=True)
    assert submit(rig, spec(replicas=2))["service"]["url"] == AT_THE_SERVER  # it says as much of a gateway as before
    assert submit(rig, spec(replicas=2, gateway="edge"))["service"]["url"] == "https://chat.example.test/"
    edge = nouns.find(rig.world.store, Gateway, keys.gateway(edge.id)) or edge
    rig.save(edge.with_(domain="other.test"))
    before = run_of(rig)
    assert before.url == "https://chat.example.test/"
    assert submit(rig, spec(replicas=2, gateway="edge"))["service"]["url"] == "https://chat.other.test/"
    assert submit(rig, spec(replicas=2, gateway="edge"))["deployment_num"] == before.deployment_num + 1
    assert submit(rig, spec(replicas=2, gateway=False))["service"]["url"] == AT_THE_SERVER


def test_whoever_deletes_the_gateway_meanwhile_hears_of_the_service(rig: Rig) -> None:
    edge = made(rig)
    submit(rig, spec(gateway="edge"))
    found = nouns.find(rig.world.store, Gateway, keys.gateway(edge.id))
    assert found is not None and found.version > edge.version


def test_a_gateway_that_has_changed_since_is_taken_as_it_is_and_one_that_leaves_isnt(rig: Rig) -> None:
    edge = made(rig)
    found = service_gateways.find(rig.world.plane, rig.project, RunSpec.model_validate(spec(gateway="edge")))
    rig.save(edge.with_(message="another state"))
    (put,) = service_gateways.held(rig.world.plane, found)
    assert isinstance(put, Put) and put.expect == edge.version + 1
    changed = nouns.find(rig.world.store, Gateway, keys.gateway(edge.id))
    assert changed is not None
    gone = gateway_seats.gateway(rig.project.id, status=GatewayStatus.deleting).with_(version=changed.version)
    rig.save(gone)
    with pytest.raises(Refused, match="being deleted"):
        service_gateways.held(rig.world.plane, found)


@pytest.mark.parametrize(("gateway", "remarks"), [("edge", ["The gateway edge has no certificate"]), (False, [])])
def test_the_plan_says_that_a_gateway_without_a_certificate_takes_no_tokens(
    rig: Rig, gateway: Any, remarks: list[str]
) -> None:
    made(rig, https_port=None)
    plan = rig.ok("P/runs/get_plan", {"run_spec": spec(gateway=gateway)})
    assert [each.partition(",")[0] for each in plan["remarks"]] == remarks
