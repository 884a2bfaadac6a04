"""Each function does what its policy allows, and needs nothing else: played on ports that keep the policies.

`tests/world/aws.py` plays the scenarios on DynamoDB and S3 and keeps them too, by the calls that botocore sends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.backends.aws.permissions import PERMISSIONS
from chalicelib.backends.registry import CLOUDS, artefacts
from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.jobs import Assignment, JobStatus
from chalicelib.domain.tenants import hash_token
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.hold import EventHold
from chalicelib.engine.ports import ConfigurationCheck
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.purchases import confirmation_delay
from chalicelib.planning.machines.hosts import ON_PREM
from chalicelib.planning.machines.instance import CHECK_EVERY
from chalicelib.runtime.root import Root
from chalicelib.runtime.step_functions import ExecutionEffects
from chalicelib.store import nouns
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.port import Change, Check, Delete, Put
from chalicelib.store.seal import NoSealer
from chalicelib.usecases.services.service_tokens import claims_of
from functions import dead_letters, erase_unused, reap_idle, reconcile, refresh_catalog, sweep_orphans
from infra import grants as may
from infra.functions import FUNCTIONS, named
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create
from tests.api.test_runs import job_of
from tests.api.uploads import multipart, send, tar, upload
from tests.engine.test_erase_fleets import end, end_fleet
from tests.engine.test_erase_unused import archive, closed, ended, pass_days, settle
from tests.engine.test_stray_blobs import dated, release
from tests.functions.test_handlers import Stack
from tests.harness.lambda_host import scheduled_event
from tests.usecases.cluster import FACTS as HOST
from tests.world import gateway_seats
from tests.world import nouns as b
from tests.world.calls import Need, Policed
from tests.world.step_functions import StepFunctions

Calls = Callable[..., Iterator[tuple[str, dict[str, Any]]]]


class Noting:
    """A port; `calls` says which call to AWS one of its methods makes there: the operation and its parameters."""

    def __init__(self, below: Any, check: Callable[[str, dict[str, Any]], None], calls: Calls) -> None:
        self._below, self._check, self._calls = below, check, calls

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            for operation, params in self._calls(name, *given):
                self._check(operation, params)
            return getattr(self._below, name)(*given, **more)

        return call


def of_table(method: str, *given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if method == "query":
        yield "Query", {} if given[0] == "main" else {"IndexName": given[0]}
    elif method == "due":
        yield "Query", {"IndexName": "due"}
    elif method == "commit":
        kinds = {Put: "Put", Delete: "Delete", Check: "ConditionCheck"}
        changes: Sequence[Change] = given[0]
        yield "TransactWriteItems", {"TransactItems": [{kinds[type(change)]: {}} for change in changes]}
    elif method in (reads := {"get": "GetItem", "get_many": "BatchGetItem", "scan": "Scan"}):
        yield reads[method], {}


def of_bucket(method: str, *given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if method == "delete":
        yield "DeleteObjects", {"Delete": {"Objects": [{"Key": name} for name in given]}}
    elif method in ("list", "dated"):
        yield "ListObjectsV2", {}
    elif method in ("get", "put"):
        yield f"{method.title()}Object", {"Key": given[0]}


def of_machines(executions: StepFunctions) -> Calls:
    def calls(method: str, *given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        if method == "start":
            yield "StartExecution", {"stateMachine": given[0]}
            return
        waiting = [one for one in executions.executions.values() if one.token == given[0]]
        for one in waiting:
            machine = next(name for name, machine in executions.machines.items() if machine is one.machine)
            yield {"succeed": "SendTaskSuccess", "fail": "SendTaskFailure"}[method], {"stateMachine": machine}

    return calls


def deployed(root: Root, policed: Policed, function: str, executions: StepFunctions | None = None) -> Root:
    """The root as the function's process has it: its ports are AWS's services, which keep its policy. `executions`:
    Step Functions, if the story has it."""
    ports, reads = root.ports, named(function).reads

    def of(service: str) -> Callable[[str, dict[str, Any]], None]:
        def check(operation: str, params: dict[str, Any]) -> None:
            with policed.running(function):
                policed.check_call(service, operation, params)

        return check

    def invoke(function: str) -> None:
        of("lambda")("Invoke", {"FunctionName": function})

    def wake(units: Iterable[str]) -> None:
        if units := list(units):
            invoke("reconcile")
            ports.wake(units)

    class AccountWork:
        def submit(self, effect: Effect) -> None:
            invoke("bootstrap_host" if effect.backend == ON_PREM else "provider_clouds")
            ports.effects.submit(effect)

        def sweep(self, account: str) -> None:
            invoke("provider_clouds")
            ports.account_work.sweep(account)

        def refresh(self, account: str) -> None:
            invoke("provider_clouds")
            ports.account_work.refresh(account)

        def check(self, check: ConfigurationCheck) -> None:
            raise AssertionError("no backend is configured here")

    store: Any = Noting(ports.store, of("dynamodb"), of_table)
    blobs: Any = Noting(ports.blobs, of("s3"), of_bucket)
    driven: Any = None if executions is None else Noting(executions, of("stepfunctions"), of_machines(executions))
    of_its_own = {"store": store, "blobs": blobs, "logs": BlobLogs(store, blobs), "wake": wake, "workflows": driven}
    of_its_own |= {
        "hold": EventHold(store, ports.clock),
        "account_work": AccountWork(),
        "streams": None,
        "publishes": False,
    }  # no connection lasts there
    of_its_own |= {"given_install_id": root.install_id, **({} if "install-key" in reads else {"install_key": b""})}
    of_its_own |= {} if "master-key" in reads else {"seal": NoSealer()}
    made = Root(replace(ports, **of_its_own, effects=ExecutionEffects(driven, AccountWork())))
    made.check_fence()  # as its process does before its first event
    return made


# What no story here plays: what every function does before its first event, and what AWS does in its name; what is said
# to Step Functions, which `test_bootstrap_host.py` and `test_workflow_step.py` play where it is said first; what was
# given up, or a host. The emulator plays those, with the deployed functions. The calls of the AWS backend are held
# against its own table in `tests/backends/aws/test_permissions.py`.
ELSEWHERE = ("Settings", "Logs", "SendDeadLetters", "Drive", "Answer", *(f"Aws{each.sid}" for each in PERMISSIONS))


# Of hosts whose workflow has no execution, because Step Functions was away: its looks ask for the steps.
BY_DESCRIBES = {("lambda:InvokeFunction", "lambda:function:dstack-{stage}-bootstrap_host")}


def spare(policed: Policed, function: str, *elsewhere: str) -> set[Need]:
    unplayed = {
        (action, thing)
        for grant in named(function).allowed
        if grant.sid in (*ELSEWHERE, *elsewhere)
        for action in grant.actions
        for thing in grant.resources
    }
    # The functions of providers' own artefacts are called as that of all others is.
    others = (may.provider(each) for each in artefacts() if each != CLOUDS)
    alike = {("lambda:InvokeFunction", f"lambda:function:dstack-{{stage}}-{name}") for name in others}
    return policed.spare(function) - unplayed - alike


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack.at(tmp_path)
    yield made
    made.root.close()


@pytest.fixture
def policed() -> Iterator[Policed]:
    made = Policed()
    yield made
    assert made.refused == []


@pytest.mark.slow
def test_erasing_needs_what_its_policy_allows_and_nothing_else(stack: Stack, policed: Policed) -> None:
    rig = stack.rig
    made = create(rig, fleet())
    end(rig, add_instance(rig, made))
    end_fleet(rig, made)
    run = ended(rig)
    archive(rig)
    settle(rig, closed(rig))
    for name in (f"archives/o/{'a' * 64}-x", f"code/o/{'b' * 64}-x"):
        rig.world.plane.blobs.put(name, b"1")
    release(rig, b"old"), release(rig, b"new")
    BlobLogs(stack.root.ports.store, stack.root.ports.blobs).append(
        rig.project.id, job_of(rig, run.id).id, 0, [(rig.world.at, b"a line")]
    )
    root = deployed(stack.root, policed, "erase_unused")
    for _ in range(4):
        dated(rig)
        pass_days(rig, 31)
        erase_unused.handler(scheduled_event("erase"), None, root)
    assert spare(policed, "erase_unused") == set()


@pytest.mark.slow
def test_a_sweep_needs_what_its_policy_allows_and_nothing_else(stack: Stack, policed: Policed) -> None:
    """The schedule's function reads which accounts there are, and takes its turn. The provider's writes what it saw
    first, gives back what nobody owns, and ends an instance whose machine is gone."""
    stack.submit_run()
    stack.perform()
    found = nouns.find(stack.root.ports.store, Instance, keys.instance(stack.instance["id"]))
    assert found is not None and found.status is InstanceStatus.provisioning
    store = stack.root.ports.store
    store.commit([Delete(keys.instance(found.id))])
    root = {name: deployed(stack.root, policed, name) for name in ("sweep_orphans", "provider_clouds")}

    def sweep(turns: int) -> dict[str, list[str]]:
        done: dict[str, list[str]] = {}
        for _ in range(turns):
            pass_days(stack.rig, (confirmation_delay(FACTS) + SECOND) / DAY)
            sweep_orphans.handler(stack.fires("sweep"), None, root["sweep_orphans"])
            [done] = stack.perform(root["provider_clouds"])
        return done

    assert sweep(2)["given_back"]
    store.commit([nouns.put(found.with_(version=0))])
    assert sweep(2)["lost"] == [found.id]
    accounts_that_are_in_the_table = {("dynamodb:BatchGetItem", may.TABLE)}
    assert spare(policed, "sweep_orphans") == accounts_that_are_in_the_table
    assert ("dynamodb:PutItem", may.TABLE) in policed.seen["provider_clouds"]


@pytest.mark.slow
def test_a_runs_whole_life_needs_what_the_policies_allow_and_nothing_else(stack: Stack, policed: Policed) -> None:
    root = {function.name: deployed(stack.root, policed, function.name) for function in FUNCTIONS}
    people = Rig(replace(stack.rig.world, plane=root["api"].plane), stack.rig.project)
    agents = Rig(replace(stack.rig.world, plane=root["agent_sync"].plane), stack.rig.project)
    blobs = stack.root.ports.blobs
    blobs.put("catalog/aws-gone/head.json", b"{}")
    for _ in range(3):
        refresh_catalog.handler(stack.fires("refresh"), None, root["refresh_catalog"])
        provided(stack, root)
        stack.rig.world.clock.pass_(60)
    assert not blobs.list("catalog/aws-gone/")
    run = bought(stack, root, people)
    host = stack.instance["id"]
    token = bootstrap_token(stack.root.ports.install_key, host, 0)
    report = {"v": 1, "instance": host, "boot": "b", "seq": 1, "facts": HOST, "tasks": []}
    answer = send(agents, "POST", "/agent/sync", orjson.dumps(report), token=token).json
    stack.reconcile()
    report |= {"seq": 2}
    task_ = send(agents, "POST", "/agent/sync", orjson.dumps(report), token=answer["credential"]).json["tasks"][0]
    assert send(agents, "GET", task_["spec"]["files"][0]["url"], token=answer["credential"]).status == 200
    assert send(agents, "GET", "/agent/join.sh").status == 200
    job = job_of(stack.rig, run["id"])
    root["agent_sync"].plane.logs.append(stack.rig.project.id, job.id, 0, [(stack.rig.world.at, b"a line")])
    people.ok("P/logs/poll", {"run_name": "hello", "job_submission_id": job.id, "start_time": None, "limit": 10})
    ended_by(people)
    for _ in range(4):
        stack.rig.world.clock.pass_(600)
        reap_idle.handler(scheduled_event("reap"), None, root["reap_idle"])
        provided(stack, root)
    assert stack.rig.ok("P/fleets/get", {"name": "pool"})["instances"] == []
    report_dead_letters(root["dead_letters"], host)
    later_object = "List"  # read before it is there
    unplayed = {
        "api": (later_object, "Accounts", "Newest"),  # when a backend is configured; when a machine is to join
        "agent_sync": (later_object, "QueryIndex", "Delete"),  # for gateways: see below
        "refresh_catalog": ("Read",),  # the accounts that are in the table
        "reconcile": (later_object, "Wake"),  # where two passes meet
        "provider_clouds": (later_object, "Query"),  # of what ends about a fleet or a volume
        "dead_letters": ("ReadDeadLetters",),
    }
    assert {name: spare(policed, name, *grants) - BY_DESCRIBES for name, grants in unplayed.items()} == {
        name: set() for name in unplayed
    }


def test_a_command_for_a_machine_is_of_the_program_that_was_deployed(stack: Stack, policed: Policed) -> None:
    """Neither who prints it nor who is asked by the machine may put another there."""
    roots = {name: deployed(stack.root, policed, name) for name in ("api", "agent_sync")}
    api, agents = (Rig(replace(stack.rig.world, plane=root.plane), stack.rig.project) for root in roots.values())
    hosts = {"spec": fleet("lab", nodes=None, ssh_config={"hosts": []})}
    api.ok("P/fleets/apply", {"plan": hosts, "force": False})
    blobs = stack.root.ports.blobs
    blobs.delete(*blobs.list("agent/"))
    reply = api.call(f"/api/project/{api.project.name}/fleets/create_join", {"name": "lab"})
    assert reply.status == 400 and "has no agent program" in reply.json["detail"][0]["msg"]
    program = release(stack.rig, b"the program")
    command = api.ok("P/fleets/create_join", {"name": "lab"})["command"]
    script = send(agents, "GET", "/agent/join.sh").body
    assert hashlib.sha256(b"the program").hexdigest().encode() in script and program
    assert hashlib.sha256(script).hexdigest() in command
    assert {action for action, _ in policed.seen["api"]} & {"s3:PutObject"} == set()
    need = {(action, thing) for action in may.NEWEST.actions for thing in may.NEWEST.resources}
    assert not need & policed.spare("api")


@pytest.mark.slow
def test_reaping_needs_what_its_policy_allows_and_nothing_else(stack: Stack, policed: Policed) -> None:
    """A machine that was silent is heard again, so the pass looks at the queue too, and buys another for a run that
    waits; then it is silent for good, and given up."""
    stack.submit_run()
    stack.perform()
    root, host = deployed(stack.root, policed, "reap_idle"), stack.instance["id"]
    report = {"v": 1, "instance": host, "boot": "b", "seq": 1, "facts": HOST, "tasks": []}
    token = bootstrap_token(stack.root.ports.install_key, host, 0)
    token = send(stack.rig, "POST", "/agent/sync", orjson.dumps(report), token=token).json["credential"]

    def reaped() -> dict[str, str]:
        reap_idle.handler(scheduled_event("reap"), None, root)
        found = stack.rig.ok("P/fleets/get", {"name": "pool"})["instances"]
        return {one["id"]: f"{one['status']}{', unreachable' * one['unreachable']}" for one in found}

    stack.rig.world.clock.pass_(600)
    assert reaped() == {host: "busy, unreachable"}
    waits = job_of(stack.rig, submit(stack.rig, task("waits"))["id"])
    stack.rig.save(waits.with_(due_at=stack.rig.world.clock.now()))  # it is in the queue
    stack.rig.world.clock.pass_(CHECK_EVERY / SECOND - 5)
    assert send(stack.rig, "POST", "/agent/sync", orjson.dumps({**report, "seq": 2}), token=token).status == 200
    stack.rig.world.clock.pass_(10)
    assert sorted(reaped().values()) == ["busy", "pending"]
    for _ in range(4):
        stack.rig.world.clock.pass_(600)
        left = reaped()
    assert left[host] == "terminating, unreachable"
    where_two_passes_meet = "Wake"
    before_it_is_there = "List"
    assert spare(policed, "reap_idle", where_two_passes_meet, before_it_is_there) == BY_DESCRIBES


def bought(stack: Stack, root: dict[str, Root], people: Rig) -> Any:
    """A run with a file, on a machine for it."""
    archive = upload(people, "/api/files/upload_archive", multipart(tar(("a", b"1")))).json
    people.ok("P/fleets/apply", {"plan": {"spec": fleet("pool")}, "force": False})
    people.ok("P/runs/get_plan", {"run_spec": task("hello")})
    run = submit(people, {**task("hello"), "file_archives": [{"id": archive["id"], "path": "/a"}]})
    hints, stack.hints[:] = sorted(set(stack.hints)), []
    reconcile.handler({"units": hints}, None, root["reconcile"])
    stack.root.ports.blobs.delete(*stack.root.ports.blobs.list("agent/"))  # of the root that this one is made from
    provided(stack, root)
    return run


def provided(stack: Stack, root: dict[str, Root]) -> None:
    stack.perform(root["provider_clouds"])


def ended_by(people: Rig) -> None:
    """What people do besides: things that are deleted, and things that must stand while another is made."""
    people.ok("P/secrets/create_or_update", {"name": "s", "value": "v"})
    people.ok("P/secrets/delete", {"secrets_names": ["s"]})
    people.ok("P/runs/stop", {"runs_names": ["hello"], "abort": True})


def report_dead_letters(root: Root, host: str) -> None:
    events = [{"effect": "Create", "unit": unit} for unit in (f"instance/{host}", "queue/none")]
    messages = [json.dumps({"requestPayload": event}) for event in events]
    root_with_letters = Root(replace(root.ports, dead_letters=lambda: iter(messages)))
    assert dead_letters.handler(scheduled_event("dead"), None, root_with_letters) == {"reported": 2}


def test_a_gateways_machine_may_ask_what_it_asks(stack: Stack, policed: Policed) -> None:
    """Its services are found by an index; streams to replicas wait in the table, and are taken out of it."""
    root, store = deployed(stack.root, policed, "agent_sync"), stack.root.ports.store
    agents = Rig(replace(stack.rig.world, plane=root.plane), stack.rig.project)
    machine = b.host(0).with_(project_id=stack.rig.project.id)
    gateway_seats.keep(store, gateway_seats.gateway(stack.rig.project.id, machine), machine)
    config = {"type": "service", "port": 80, "commands": ["serve"], "gateway": "edge"}
    run = submit(stack.rig, {"run_name": "chat", "configuration": config})
    job = job_of(stack.rig, run["id"])
    placed = Assignment(
        instance_id=machine.id, instance_name="i", fleet_id="f", fleet_name="f", offer=b.offer(), assigned_at=b.NOW
    )
    store.commit([nouns.put(job.with_(status=JobStatus.running, assignment=placed, ready_at=b.NOW))])

    def ask(method: str, path: str, body: Any = None) -> Any:
        token = gateway_seats.credential(machine)
        return send(agents, method, path, b"" if body is None else orjson.dumps(body), token=token)

    assert ask("GET", "/agent/gateway").json["services"][0]["run_id"] == run["id"]
    known = {"project": stack.rig.project.id, "run": run["id"]}
    assert ask("POST", "/agent/gateway/rights", {"token_hash": hash_token(ADMIN), **known}).json["allowed"]
    api = Rig(replace(stack.rig.world, plane=deployed(stack.root, policed, "api").plane), stack.rig.project)
    token = api.ok("P/services/create_token", {"run_name": "chat"})["token"]  # one function signs what another knows
    scoped = {"token_hash": hash_token(token), "claims": claims_of(token), **known}
    assert ask("POST", "/agent/gateway/rights", scoped).json["allowed"]
    seen = {"run_id": run["id"], "at": b.NOW, "quiet": False, "held": 1, "waits_since": b.NOW}
    assert ask("POST", "/agent/gateway/traffic", {"reports": [{**seen, "buckets": [], "let_go": []}]}).status == 204
    order = {"id": "s", "ticket": "t", "instance": machine.id, "task": job.id, "target": "port:80"}
    assert ask("POST", "/agent/gateway/streams", {"streams": [order], "pin": "0" * 64}).status == 204
    report = {"v": 1, "instance": machine.id, "boot": "b", "seq": 1, "tasks": []}
    assert ask("POST", "/agent/sync", report).json["streams"]
    its = {
        (action, thing)
        for grant in (may.QUERY_INDEX, may.DELETE)
        for action in grant.actions
        for thing in grant.resources
    }
    assert its & policed.spare("agent_sync") == set()
