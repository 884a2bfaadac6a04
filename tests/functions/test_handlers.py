"""What each function makes of its event, on a root given to it: a run is placed, its machine bought, heard and ended.

What functions ask of each other is listed here and nothing runs by itself, so each step is one event. The events are
those of the harness.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api.route import of_hosts
from chalicelib.api.routes import ROUTES
from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.registry import CLOUDS
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault, Script
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain import keys
from chalicelib.domain.ids import server_mark
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Bug, DataTooNew, Transient
from chalicelib.runtime import telemetry
from chalicelib.runtime.chalice_app import ControlPlane
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.event_chains import EventChain
from chalicelib.runtime.lambda_ import WakeUps
from chalicelib.runtime.provider_functions import ProviderFunctions
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store.port import Put, Record
from chalicelib.store.record_form import FORM, announce_form
from chalicelib.usecases.context import Plane
from chalicelib.usecases.operator.first_start import first_start
from functions import agent_sync, erase_unused, provider, reap_idle, reconcile, refresh_catalog, sweep_orphans
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.api.test_runs import finish
from tests.harness.lambda_host import api_event, scheduled_event, url_event
from tests.hosts.private_key import PRIVATE
from tests.usecases.cluster import FACTS as HOST
from tests.world.plane import World
from tests.world.time import Clock


class RecordedRequests(dict[str, list[dict[str, Any]]]):
    """Lambda, as far as one function asks it: the asynchronous events of each function."""

    def __call__(self, service: str) -> RecordedRequests:
        assert service == "lambda"
        return self

    def __missing__(self, function: str) -> list[dict[str, Any]]:
        return self.setdefault(function, [])

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> None:
        assert InvocationType == "Event", "nobody waits for a function"
        self[FunctionName].append(json.loads(Payload))


@dataclass
class Stack:
    """A root whose asynchronous invocations are lists."""

    root: Root
    rig: Rig
    hints: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)  # for the function that works on providers

    @classmethod
    def at(cls, folder: Path) -> Stack:
        clock = Clock()
        made = EmbeddedRoot(ServerSettings(data_dir=folder), ServerConfig(projects=()), "http://plane", clock=clock)
        hints: list[str] = []
        requests = RecordedRequests()
        work = ProviderFunctions(requests, {CLOUDS: "provider_clouds"}, EventChain())
        backends = Accounts([Account.of(FakeCloud(clock.now))])
        root = Root(replace(made.ports, backends=backends, wake=hints.extend, effects=work, account_work=work))
        _, project = first_start(root.plane, ADMIN)
        rig = Rig(World(root.plane, clock, folder), project)
        return cls(root, rig, hints, requests["provider_clouds"])

    def fires(self, rule: str) -> dict[str, Any]:
        """What a schedule sends at this moment."""
        return scheduled_event(rule, self.rig.world.clock.now() / SECOND)

    def refresh(self) -> None:
        done = refresh_catalog.handler(self.fires("refresh"), None, self.root)
        assert done == {"accounts": [f"{FACTS.name}-all"]}
        self.perform()

    def submit_run(self) -> None:
        self.refresh()
        self.rig.ok("P/fleets/apply", {"plan": {"spec": fleet("pool")}, "force": False})
        submit(self.rig, task("hello"))
        self.reconcile()

    def reconcile(self) -> None:
        units, self.hints[:] = sorted(set(self.hints)), []
        assert reconcile.handler({"units": units}, None, self.root)["failed"] == {}

    def perform(self, root: Root | None = None) -> list[dict[str, Any]]:
        """What providers' function answers to each of its events."""
        events, self.events[:] = list(self.events), []
        return [provider.handler(event, None, root or self.root) for event in events]

    def sweep(self) -> list[dict[str, Any]]:
        sweep_orphans.handler(self.fires("sweep"), None, self.root)
        return self.perform()

    @property
    def instance(self) -> dict[str, Any]:
        (found,) = self.rig.ok("P/fleets/get", {"name": "pool"})["instances"]
        return dict(found)

    def run_status(self) -> str:
        return str(self.rig.ok("P/runs/get", {"run_name": "hello"})["status"])


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    found = Stack.at(tmp_path)
    yield found
    found.root.close()


def test_a_run_is_placed_its_machine_bought_and_its_agent_let_in(stack: Stack) -> None:
    stack.submit_run()
    assert stack.instance["status"] == "pending" and len(stack.events) == 1
    stack.perform()
    assert stack.instance["status"] == "provisioning"
    instance_id = stack.instance["id"]
    token = bootstrap_token(stack.root.ports.install_key, instance_id, 0)
    report = {"v": 1, "instance": instance_id, "boot": "b", "seq": 1, "agent": "test", "facts": HOST, "tasks": []}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    event = url_event("POST", "/agent/sync", "", headers, json.dumps(report).encode())
    answer = agent_sync.handler(event, None, stack.root)
    assert answer["statusCode"] == 200 and "credential" in json.loads(base64.b64decode(answer["body"]))
    stack.reconcile()
    assert stack.instance["status"] == "busy"
    assert stack.sweep() == [{"given_back": [], "lost": []}]
    assert reap_idle.handler(scheduled_event("reap"), None, stack.root)["failed"] == {}


def test_the_function_url_answers_what_agents_call_and_nothing_else(stack: Stack) -> None:
    """Behind it there is no throttling, so users' routes don't exist there, whoever asks."""
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}

    def status(method: str, path: str) -> int:
        found: int = agent_sync.handler(url_event(method, path, "", headers, b"{}"), None, stack.root)["statusCode"]
        return found

    assert stack.rig.ok("/api/projects/list") != [], "the token is good"
    users = [route for route in ROUTES if not of_hosts(route)]
    assert len(users) > 50
    assert {status(route.method, route.path.replace("{project_name}", "main")) for route in users} == {404}
    assert status("POST", "/agent/sync") != 404


def test_a_host_that_is_added_knows_the_server_at_the_function_url(stack: Stack) -> None:
    """It is the only address that the host is given, so `hosts/reachability.py` asks there."""
    answer = agent_sync.handler(url_event("GET", "/healthcheck", "", {}, b""), None, stack.root)
    shown = json.loads(base64.b64decode(answer["body"]))
    assert (answer["statusCode"], shown["server"]) == (200, server_mark(stack.root.install_id))


def test_a_wake_up_that_cant_be_sent_fails_no_request(stack: Stack, caplog: pytest.LogCaptureFixture) -> None:
    """It follows a commit: what was committed is due, and the schedule finds it."""

    class Away:
        def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> None:
            raise ConnectionError("Lambda doesn't answer")

    hints = WakeUps(lambda service: Away(), "reconcile", EventChain())
    root = Root(replace(stack.root.ports, wake=hints))
    rig = Rig(World(root.plane, stack.rig.world.clock, stack.rig.world.folder), stack.rig.project)
    assert rig.ok("P/fleets/apply", {"plan": {"spec": fleet("pool")}, "force": False})["name"] == "pool"
    submit(rig, task("hello"))
    assert hints.lost > 0 and "wake-ups were lost" in caplog.text
    assert stack.run_status() == "submitted", "it is there all the same"


def test_hosts_over_ssh_are_refused_where_nothing_can_log_in_to_them(stack: Stack) -> None:
    root = Root(replace(stack.root.ports, logins=None))
    rig = Rig(World(root.plane, stack.rig.world.clock, stack.rig.world.folder), stack.rig.project)
    ssh = {"user": "ubuntu", "hosts": ["h1"], "ssh_key": {"public": "", "private": PRIVATE}}
    spec = {"configuration": {"type": "fleet", "name": "lab", "ssh_config": ssh}}
    assert stack.rig.ok("P/fleets/get_plan", {"spec": spec})["action"] == "create", "the embedded root can"
    for path, body in (("get_plan", {"spec": spec}), ("apply", {"plan": {"spec": spec}, "force": False})):
        assert "`ssh_config` isn't supported here yet" in rig.refused(f"P/fleets/{path}", body)


def test_only_the_function_that_buys_publishes_the_agent(stack: Stack) -> None:
    """No other function's role may write its blob."""
    blobs = stack.root.ports.blobs
    for name in blobs.list("agent/"):  # of the embedded root that the stack is made from
        blobs.delete(name)
    stack.submit_run()
    sweep_orphans.handler(stack.fires("sweep"), None, stack.root)
    assert blobs.list("agent/") == []
    stack.perform()
    named, newest = sorted(blobs.list("agent/"), key=len, reverse=True)
    assert newest == "agent/agent.pyz" and len(named) == len("agent/.pyz") + 64


def test_an_effect_that_comes_twice_buys_once(stack: Stack) -> None:
    """Lambda brings each event at least once."""
    stack.submit_run()
    stack.events *= 2
    stack.perform()
    assert stack.instance["status"] == "provisioning"
    (account,) = stack.root.ports.backends.accounts()
    assert [each.handle.kind for each in account.backend.list_owned()].count("vm") == 1


def test_a_schedule_finds_what_a_lost_hint_would_have_named(stack: Stack) -> None:
    submit(stack.rig, task("hello"))
    stack.hints.clear()
    stack.rig.world.clock.pass_(stack.rig.world.plane.pace.recheck)
    for _ in range(2):  # its run's look queues it, and as there is no place, the next pass looks why
        reconcile.handler(scheduled_event("reconcile"), None, stack.root)
    assert stack.run_status() != "submitted"


def test_a_refresh_that_leaves_jobs_without_first_offers_is_one_for_lambda_to_repeat(stack: Stack) -> None:
    script = Script(faults=[Fault("offers", "Transient", times=2)])
    backends = Accounts([Account.of(FakeCloud(stack.rig.world.clock.now, script=script))])
    root = Root(replace(stack.root.ports, backends=backends))
    event = {"refresh": f"{FACTS.name}-all"}
    for _ in range(2):
        with pytest.raises(Transient, match="no offers yet"):
            provider.handler(event, None, root)
    assert provider.handler(event, None, root) == {"awaited": False}
    script.faults.append(Fault("offers", "Transient"))
    assert provider.handler(event, None, root) == {"awaited": False}, "nobody waits for these"


def test_what_nobody_uses_any_more_is_erased(stack: Stack) -> None:
    made = submit(stack.rig, task("hello"))
    finish(stack.rig, made["id"])
    stack.rig.ok("P/runs/delete", {"runs_names": ["hello"]})
    stack.rig.world.clock.at += DAY
    done = erase_unused.handler(scheduled_event("erase"), None, stack.root)
    assert {what: found for what, found in done.items() if found} == {"runs": [made["id"]]}


def test_failures_are_raised_for_lambda_and_counted_for_the_operator(stack: Stack) -> None:
    """Lambda repeats what raised."""
    counted: dict[str, int] = {}
    root = Root(replace(stack.root.ports, count=counted.__setitem__))
    with pytest.raises(Bug, match="no effect is called 'Nonsense'"):
        provider.handler({"effect": "Nonsense"}, None, root)
    reap_idle.handler(scheduled_event("reap"), None, root)
    assert counted == {telemetry.EFFECTS_FAILED: 1, telemetry.UNITS_FAILED: 0}


def test_functions_of_an_earlier_release_than_the_records_refuse_them(stack: Stack) -> None:
    ports = stack.root.ports
    announce_form(ports.store)
    assert Root(ports).fence() is None
    ports.store.commit([Put(Record(keys.renewal(FORM + 1), 1, b"{}"), expect=0)])

    def plane() -> Plane:
        root = Root(ports)  # of a new process, as `lambda_.root` makes it
        root.check_fence()
        return root.plane

    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    answer = ControlPlane(plane)(api_event("POST", "/api/runs/list", "", headers, b"{}", binary=()), None)
    assert answer["statusCode"] == 400 and "newer version of this program" in answer["body"]
    with pytest.raises(DataTooNew, match="way back"):
        agent_sync.handler(url_event("POST", "/agent/sync", "", headers, b"{}"), None, Root(ports))
