"""A gateway's configuration and reports: those of its own services, and of no others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.agent.gateway import entries
from chalicelib.api import dispatch
from chalicelib.domain import keys
from chalicelib.domain.certificates import (
    Certificate,
    CertificateOrder,
    CertificatePair,
    CertificateStatus,
    certificate_id,
    sealed_for,
)
from chalicelib.domain.gateways import ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus, OnPrem
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.runs import Run
from chalicelib.domain.services import Traffic, door_of
from chalicelib.domain.tenants import ProjectRole, hash_token
from chalicelib.hosts.join_script import JoinScript
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.pace import EMBEDDED, PER_CALL
from chalicelib.usecases.services import certificates
from chalicelib.usecases.services.service_tokens import claims_of
from tests.api.rig import ADMIN, Response, Rig, submit
from tests.hosts.bad_host import KEY
from tests.world import gateway_seats as seats
from tests.world import nouns as b

PIN = "ab" * 32
MACHINE = b.host(0, b.fleet("edge"), hostname="10.0.0.9", host=OnPrem(hostname="10.0.0.9", port=22))


class Streams:
    """It remembers what is passed on."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, dict[str, Any]]] = []

    def pass_on(self, instance_id: str, order: dict[str, Any]) -> None:
        self.passed.append((instance_id, order))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.at(tmp_path)


def edge(rig: Rig, *machines: Instance, **fields: Any) -> Any:
    machines = tuple(each.with_(project_id=rig.project.id) for each in machines or (MACHINE,))
    return seats.keep(rig.world.store, seats.gateway(rig.project.id, *machines, **fields), *machines)


def serve(rig: Rig, name: str, *, on: Instance | None = None, **fields: Any) -> tuple[Run, Job]:
    """A service with a replica that is ready; `on` that machine."""
    config = {"type": "service", "port": 8000, "commands": ["serve"], "gateway": "edge", **fields}
    made = submit(rig, {"run_name": name, "configuration": config})
    run = nouns.find(rig.world.store, Run, keys.run(made["id"]))
    records = all_of(rig.world.store, "main", f"run/{made['id']}", low="job/", high="job0")
    job = next(nouns.read(Job, record) for record in records)
    assert run is not None
    place = Assignment(
        instance_id="elsewhere" if on is None else on.id,
        instance_name="i",
        fleet_id="f",
        fleet_name="f",
        offer=b.offer("m1", 1.0),
        assigned_at=b.NOW,
    )
    job = job.with_(status=JobStatus.running, assignment=place, ready_at=b.NOW, address="172.17.0.2")
    rig.save(job)
    return run, job


def call(rig: Rig, path: str, body: Any = None, *, as_: Instance = MACHINE, **query: str) -> Response:
    method, raw = ("GET", b"") if body is None else ("POST", orjson.dumps(body))
    sent = {"authorization": f"Bearer {seats.credential(as_)}"}
    found = dispatch.answer(rig.world.plane, dispatch.Request(method, f"/agent/gateway{path}", query, sent, raw))
    return Response(found.status, found.body)


def configuration(rig: Rig, since: str = "", as_: Instance = MACHINE) -> Any:
    reply = call(rig, "", since=since, as_=as_)
    assert reply.status == 200, reply.body
    return reply.json


def test_it_is_told_its_own_services_with_their_hosts(rig: Rig) -> None:
    edge(rig)
    run, job = serve(rig, "chat", model="m", rate_limits=[{"rps": 2}])
    serve(rig, "other", gateway=False)
    (service,) = configuration(rig)["services"]
    assert (service["run_id"], service["hosts"], service["project_name"]) == (run.id, ["chat.example.test"], "main")
    assert [(each["job_id"], each["address"]) for each in service["replicas"]] == [(job.id, "")]
    assert configuration(rig)["model_hosts"] == {"gateway.example.test": rig.project.id}
    found = entries.entries(configuration(rig), "/relays")
    assert {"host|chat.example.test", "host|gateway.example.test"} == set(found)


def test_a_replica_on_its_own_machine_is_reached_directly(rig: Rig) -> None:
    edge(rig)
    serve(rig, "near", on=MACHINE)
    ((replica,),) = [each["replicas"] for each in configuration(rig)["services"]]
    assert replica["address"] == "172.17.0.2"


@pytest.mark.parametrize(
    ("network", "host_port", "nearby"),
    [("10.0.0.0/24", 8000, "10.0.0.10"), ("10.0.0.0/24", None, ""), (None, 8000, "")],
)
def test_a_replica_in_its_network_may_be_reached_directly(
    rig: Rig, network: str | None, host_port: int | None, nearby: str
) -> None:
    """If it has its host's network, and the fleet says that its hosts share one."""
    rig.ok("P/fleets/apply", {"plan": {"spec": lab(network)}, "force": False})
    (made,) = [each for each in rig.world.plane.read.fleets(rig.project.id) if each.name == "lab"]
    first, second = (
        b.host(num, made, host=OnPrem(hostname=f"h{num}", port=22), internal_ip=f"10.0.0.{num}") for num in (9, 10)
    )
    edge(rig, first)
    rig.save(second)
    run, _ = serve(rig, "far", on=second)
    job = nouns.find(rig.world.store, Job, keys.job(run.id, 0, 0, 0))
    assert job is not None
    rig.save(job.with_(host_port=host_port))
    ((replica,),) = [each["replicas"] for each in configuration(rig, as_=first)["services"]]
    assert (replica["address"], replica["nearby"]) == ("", nearby)


def lab(network: str | None) -> dict[str, Any]:
    ssh = {"user": "u", "hosts": ["h0", "h1"], "ssh_key": {"public": "", "private": KEY}, "network": network}
    return {"configuration": {"type": "fleet", "name": "lab", "ssh_config": ssh}}


def test_the_same_word_is_said_once(rig: Rig) -> None:
    edge(rig)
    rig.world.plane = replace(rig.world.plane, pace=EMBEDDED)
    _, job = serve(rig, "chat")
    first = configuration(rig)
    assert first["news"] and configuration(rig, first["version"]) == {"news": False, "ask_in": 0.0}
    found = nouns.find(rig.world.store, Job, keys.job(job.run_id, 0, 0, 0))
    assert found is not None
    rig.save(found.with_(draining_at=b.NOW))
    second = configuration(rig, first["version"])
    assert second["news"] and second["services"][0]["replicas"][0]["draining"]


def test_where_calls_cost_money_it_is_told_when_to_ask_again(rig: Rig) -> None:
    edge(rig)
    rig.world.plane = replace(rig.world.plane, pace=PER_CALL)
    _, job = serve(rig, "chat")
    assert configuration(rig)["ask_in"] == 10
    found = nouns.find(rig.world.store, Job, keys.job(job.run_id, 0, 0, 0))
    assert found is not None
    rig.save(found.with_(ready_at=None))
    assert configuration(rig)["ask_in"] == 2


def test_an_agent_without_a_gateway_and_one_whose_gateway_is_gone_are_told_so(rig: Rig) -> None:
    plain = b.host(1, b.fleet("edge"))
    rig.save(plain, seats.agent(plain))
    assert call(rig, "", as_=plain).status == 410
    stranger = b.host(2, b.fleet("edge"))
    assert call(rig, "", as_=stranger).status == 403
    rig.save(seats.seated(stranger, seats.gateway(rig.project.id)), seats.agent(stranger))
    assert call(rig, "", as_=stranger).status == 410  # its gateway's record was erased


def test_a_machine_that_is_to_carry_no_replica_any_more_is_told_nothing(rig: Rig) -> None:
    """Its credential lives on, and its number may be another machine's."""
    made = edge(rig)
    run, _ = serve(rig, "chat")
    (replica,) = made.replicas
    lost = rig.world.plane.read.find(Instance, keys.instance(MACHINE.id))
    assert lost is not None and call(rig, "").status == 200

    def refused() -> None:
        order = {"id": "s", "ticket": "t", "instance": "elsewhere", "task": "x", "target": "port:1"}
        rights = {"token_hash": hash_token("x"), "project": rig.project.id}
        for path, body in (
            ("", None),
            ("/rights", rights),
            ("/traffic", {"reports": [report_of(run)]}),
            ("/streams", {"streams": [order]}),
        ):
            assert call(rig, path, body).status == 410, path

    def now(noun: Any) -> None:
        there = rig.record(nouns.key_of(noun))
        rig.save(noun.with_(version=there.version))

    for status in (InstanceStatus.terminating, InstanceStatus.terminated):
        now(lost.with_(**{"status": status}))
        refused()
    now(lost)
    ending = replica.with_(state=ReplicaState.terminating)
    for replicas in ((ending,), (), (replica.with_(instance_id="another"),)):
        now(made.with_(replicas=replicas))
        refused()
    now(made)
    assert call(rig, "").status == 200


def test_rights_are_those_of_its_project_only(rig: Rig) -> None:
    edge(rig)
    other = rig.another_project("far")
    ann, eve = rig.user("ann", ProjectRole.user), rig.user("eve", ProjectRole.admin, other)
    allowed = [
        call(rig, "/rights", {"token_hash": hash_token(token), "project": project}).json["allowed"]
        for token, project in ((ann, rig.project.id), (eve, rig.project.id), (eve, other.id), ("x", rig.project.id))
    ]
    assert allowed == [True, False, False, False]
    rig.deactivate("ann")
    assert not call(rig, "/rights", {"token_hash": hash_token(ann), "project": rig.project.id}).json["allowed"]


def test_a_token_for_services_is_judged_by_its_hash_and_claims(rig: Rig) -> None:
    edge(rig)
    (web, _), (other, _) = serve(rig, "web"), serve(rig, "other")

    def allowed(token: str, run: str, **changed: str) -> bool:
        body = {"token_hash": hash_token(token), "claims": claims_of(token), "project": rig.project.id, "run": run}
        found: bool = call(rig, "/rights", {**body, **changed}).json["allowed"]
        return found

    every, one = (rig.ok("P/services/create_token", body)["token"] for body in ({}, {"run_name": "web"}))
    assert [allowed(every, run) for run in (web.id, other.id, "")] == [True, True, True]
    assert [allowed(one, run) for run in (web.id, other.id, "")] == [True, False, False]
    assert not allowed(one, web.id, claims=claims_of(every)) and not allowed(every, web.id, claims="")
    assert not allowed(every, web.id, token_hash=hash_token("another"))
    query = {"token_hash": hash_token(every), "claims": claims_of(every), "project": rig.project.id}
    rig.world.at += 20 * SECOND
    assert call(rig, "/rights", query).json == {"allowed": True, "ends_in": 3580 - rig.world.at % SECOND / SECOND}
    assert call(rig, "/rights", {**query, "claims": ""}).json == {"allowed": False}
    own = {"token_hash": hash_token(ADMIN), "project": rig.project.id}
    assert call(rig, "/rights", own).json == {"allowed": True}, "without an end"


def report_of(run: Run, **more: Any) -> dict[str, Any]:
    bucket = {"at": b.NOW, "requests": 3, "busy": 0.5}
    report = {"run_id": run.id, "at": b.NOW, "quiet": False, "held": 0, "buckets": [bucket]}
    return {**report, "let_go": [], **more}


def test_what_it_saw_is_kept_under_its_door(rig: Rig) -> None:
    made = edge(rig)
    run, job = serve(rig, "chat")
    assert call(rig, "/traffic", {"reports": [report_of(run, let_go=[job.id])]}).status == 204
    found = nouns.find(rig.world.store, Traffic, keys.traffic(run.id, door_of(made.id, 0)))
    assert found is not None
    assert (found.let_go, [each.requests for each in found.buckets]) == ((job.id,), [3])


def test_how_long_its_answers_took_is_kept_and_what_a_later_release_adds_is_dropped(rig: Rig) -> None:
    made = edge(rig)
    run, _ = serve(rig, "chat")
    at = b.NOW
    answers = [{"at": at, "first_byte": [0, 2], "whole": [0, 0, 1], "later": 1}]
    told = {"answers": answers, "whole": {"histogram": [0, 0, 9], "seconds": 0.5}, "later": {}}
    assert call(rig, "/traffic", {"reports": [report_of(run, **told)]}).status == 204
    found = nouns.find(rig.world.store, Traffic, keys.traffic(run.id, door_of(made.id, 0)))
    assert found is not None
    assert [(each.first_byte, each.whole) for each in found.answers] == [((0, 2), (0, 0, 1))]
    assert (found.whole.histogram, found.whole.seconds, found.first_byte.histogram) == ((0, 0, 9), 0.5, ())


def test_what_it_says_of_other_services_is_dropped(rig: Rig) -> None:
    made = edge(rig)
    run, _ = serve(rig, "other", gateway=False)
    assert call(rig, "/traffic", {"reports": [report_of(run), report_of(run, run_id="nobody")]}).status == 204
    assert nouns.find(rig.world.store, Traffic, keys.traffic(run.id, door_of(made.id, 0))) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": -1},
        {"held": -1},
        {"quiet": "perhaps"},
        {"let_go": ["x" * 65]},
        {"buckets": [{"at": 0, "requests": -1, "busy": 0}]},
        {"buckets": [{"at": 0, "requests": 1, "busy": -1}]},
        {"answers": [{"at": 0, "first_byte": [-1], "whole": []}]},
        {"answers": [{"at": 0, "first_byte": [0] * 26, "whole": []}]},
        {"whole": {"histogram": [1], "seconds": -1}},
    ],
)
def test_nonsense_is_refused(rig: Rig, wrong: dict[str, Any]) -> None:
    edge(rig)
    run, _ = serve(rig, "chat")
    assert call(rig, "/traffic", {"reports": [report_of(run, **wrong)]}).status == 400


def test_streams_are_passed_on_to_the_agents_of_its_replicas_only(rig: Rig) -> None:
    edge(rig, http_port=8080, https_port=8443)
    streams = Streams()
    rig.world.plane = replace(rig.world.plane, streams=streams)
    _, job = serve(rig, "chat")
    _, other = serve(rig, "other", gateway=False)
    order = {
        "id": "s1",
        "ticket": "ticket-1",
        "instance": "elsewhere",
        "task": job.id,
        "target": "port:8000",
        "lazily": True,
    }
    wrong = [{"task": other.id}, {"instance": MACHINE.id}, {"target": "port:22"}, {"target": "ssh"}]
    orders = [order, *({**order, "id": f"w{at}", **each} for at, each in enumerate(wrong))]
    assert call(rig, "/streams", {"streams": orders, "pin": PIN}).status == 204
    gateway = {"gateway": "https://10.0.0.9:8443", "pin": PIN}
    passed_order = {"id": "s1", "ticket": "ticket-1", "task": job.id, "target": "port:8000", "lazily": True}
    assert streams.passed == [("elsewhere", {**passed_order, **gateway})]


@pytest.mark.parametrize(
    ("host", "near", "server", "dials"),
    [
        (OnPrem(hostname="fe80::9", port=22), False, "", "[fe80::9]"),
        (OnPrem(hostname="metadata", port=0, joined=True), False, "", "gateway.example.test"),
        (OnPrem(hostname="metadata", port=0, joined=True), True, "", "127.0.0.1"),
        (None, False, "http://plane.example.com:3000", "plane.example.com"),
        (None, False, "http://127.0.0.1:3000", "gateway.example.test"),  # it comes to the server through a tunnel
        (None, False, "", "gateway.example.test"),
    ],
)
def test_nobody_dials_where_a_host_that_joined_by_itself_says(
    rig: Rig, host: OnPrem | None, near: bool, server: str, dials: str
) -> None:
    """The DNS record of the domain says where that is."""
    machine = MACHINE.with_(host=host, hostname="" if host is None else host.hostname)
    other = b.host(1, b.fleet("edge"), host=OnPrem(hostname="h1", port=22)).with_(project_id=rig.project.id)
    edge(rig, machine)
    rig.save(other)
    streams = Streams()
    joining = JoinScript(rig.world.store, rig.world.clock, "install", server, lambda: "") if server else None
    rig.world.plane = replace(rig.world.plane, streams=streams, joining=joining)
    _, job = serve(rig, "chat", on=machine if near else other)
    order = {"id": "s1", "ticket": "t", "instance": (machine if near else other).id, "task": job.id}
    assert call(rig, "/streams", {"streams": [{**order, "target": "port:8000"}], "pin": PIN}).status == 204
    assert [sent_order["gateway"] for _, sent_order in streams.passed] == [f"https://{dials}:443"]


def test_without_https_a_gateway_is_dialled_as_it_is_called_without_tls(rig: Rig) -> None:
    edge(rig, http_port=8080, https_port=None)
    streams = Streams()
    rig.world.plane = replace(rig.world.plane, streams=streams)
    _, job = serve(rig, "chat")
    order = {"id": "s1", "ticket": "t", "instance": "elsewhere", "task": job.id, "target": "port:8000"}
    assert call(rig, "/streams", {"streams": [order]}).status == 204
    ((_, passed_order),) = streams.passed
    assert passed_order["gateway"] == "http://10.0.0.9:8080" and "pin" not in passed_order


@pytest.mark.parametrize(
    ("https_port", "pin", "status", "message"),
    [
        (443, "", 400, "The gateway edge has https, so its `pin` is needed."),
        (None, "a" * 64, 400, "The gateway edge has no https, so a `pin` means nothing."),
        (443, "A" * 64, 400, "pin"),
        (443, "a" * 63, 400, "pin"),
        (443, "a" * 64 + "\n", 400, "pin"),
    ],
)
def test_no_ticket_goes_out_for_a_gateway_that_its_agents_wouldnt_know(
    rig: Rig, https_port: int | None, pin: str, status: int, message: str
) -> None:
    edge(rig, https_port=https_port)
    streams = Streams()
    rig.world.plane = replace(rig.world.plane, streams=streams)
    _, job = serve(rig, "chat")
    order = {"id": "s1", "ticket": "t", "instance": "elsewhere", "task": job.id, "target": "port:8000"}
    reply = call(rig, "/streams", {"streams": [order], "pin": pin})
    assert reply.status == status and message in reply.body.decode() and streams.passed == []


def test_where_no_process_lasts_they_wait_in_the_table_for_the_agents_next_call(rig: Rig) -> None:
    edge(rig)
    rig.world.plane = replace(rig.world.plane, streams=None)
    far = b.host(1, b.fleet("edge")).with_(project_id=rig.project.id)
    rig.save(far, seats.agent(far))
    _, job = serve(rig, "chat", on=far)
    order = {
        "id": "s1",
        "ticket": "ticket-1",
        "instance": far.id,
        "task": job.id,
        "target": "port:8000",
        "lazily": True,
    }

    def sync(seq: int) -> Any:
        report = {"v": 1, "instance": far.id, "boot": "b", "seq": seq, "tasks": []}
        sent = {"authorization": f"Bearer {seats.credential(far)}"}
        request = dispatch.Request("POST", "/agent/sync", {}, sent, orjson.dumps(report))
        return orjson.loads(dispatch.answer(rig.world.plane, request).body)

    assert call(rig, "/streams", {"streams": [order], "pin": PIN}).status == 204
    assert call(rig, "/streams", {"streams": [order], "pin": PIN}).status == 204  # it asks again for what hasn't come
    record = rig.record(keys.stream_order(far.id, "s1"))
    assert b"ticket-1" not in record.body
    passed_order = {**order, "gateway": "https://10.0.0.9:443", "pin": PIN}
    assert sync(1)["streams"] == [{name: passed_order[name] for name in passed_order if name != "instance"}]
    assert "streams" not in sync(2)
    assert call(rig, "/streams", {"streams": [order], "pin": PIN}).status == 204
    rig.world.clock.pass_(31)
    assert "streams" not in sync(3)


# --- certificates -----------------------------------------------------------------------------------------------------


def certificate(rig: Rig, made: Any, host: str) -> Certificate:
    found = nouns.find(rig.world.store, Certificate, keys.certificate(certificate_id(made.id, host)))
    assert found is not None
    return found


def order_for(made: Any, token: str) -> CertificateOrder:
    return CertificateOrder(
        directory="https://ca", url="https://ca/1", token=token, answer=f"{token}.thumb", key="k", placed_at=1
    )


def test_each_of_its_hosts_is_to_have_a_certificate(rig: Rig) -> None:
    made = edge(rig)
    serve(rig, "chat", model="llama")
    serve(rig, "plain", https=False)
    configuration(rig)
    listed = [each.name for each in certificates.of_gateway(rig.world.plane, made.id)]
    assert listed == ["chat.example.test", "gateway.example.test"]
    assert f"certificate/{certificate(rig, made, listed[0]).id}" in rig.world.woken


@pytest.mark.parametrize("changes", [{"https_port": None}, {"written": {"certificate": None}}], ids=["port", "null"])
def test_a_gateway_that_wants_none_has_none(rig: Rig, changes: dict[str, Any]) -> None:
    made = edge(rig, **changes)
    serve(rig, "chat")
    found = configuration(rig)
    assert found["certificates"] == found["challenges"] == {}
    assert certificates.of_gateway(rig.world.plane, made.id) == []


def test_a_challenge_counts_as_answered_once_the_gateway_has_it(rig: Rig) -> None:
    made = edge(rig)
    serve(rig, "chat")
    configuration(rig)
    waits = certificate(rig, made, "chat.example.test")
    rig.save(waits.with_(status=CertificateStatus.ordered, order=order_for(made, "token-1")))
    found = configuration(rig)
    assert found["challenges"] == {"token-1": "token-1.thumb"}
    assert not certificate(rig, made, waits.name).heard  # it is only on its way
    assert configuration(rig, since=found["version"])["news"] is False
    assert certificate(rig, made, waits.name).heard
    rig.world.take_woken()
    configuration(rig, since=found["version"])
    assert rig.world.take_woken() == set()


def test_people_are_sent_to_https_once_there_is_a_certificate(rig: Rig) -> None:
    made = edge(rig, https_port=8443)
    serve(rig, "chat")
    assert [each["https"] for each in configuration(rig)["services"]] == [None]
    one = certificate(rig, made, "chat.example.test")
    key = rig.world.plane.seal.seal("KEY", context=sealed_for(one.id))
    pair = CertificatePair(chain="CHAIN", key=key, since=b.NOW, until=rig.world.at + 1_000_000)
    rig.save(one.with_(status=CertificateStatus.issued, pair=pair))
    found = configuration(rig)
    assert found["certificates"] == {"chat.example.test": {"certificate": "CHAIN", "key": "KEY"}}
    assert [each["https"] for each in found["services"]] == [8443]
    assert json.loads(entries.entries(found, "")["host|chat.example.test"])["https"] == 8443
    rig.world.at += 2_000_000  # it has expired
    found = configuration(rig)
    assert found["certificates"] == {} and [each["https"] for each in found["services"]] == [None]


def test_a_certificates_key_is_told_to_its_gateway_alone(rig: Rig) -> None:
    made, other = edge(rig), b.host(1, b.fleet("other"), hostname="10.0.0.8").with_(project_id=rig.project.id)
    seats.keep(rig.world.store, seats.gateway(rig.project.id, other, name="other"), other)
    serve(rig, "chat")
    configuration(rig)
    one = certificate(rig, made, "chat.example.test")
    key = rig.world.plane.seal.seal("KEY", context=sealed_for(one.id))
    rig.save(
        one.with_(
            status=CertificateStatus.issued, pair=CertificatePair(chain="C", key=key, since=1, until=rig.world.at * 2)
        )
    )
    assert configuration(rig)["certificates"] and configuration(rig, as_=other)["certificates"] == {}
