"""Both roots are made from their settings and nothing else, so that any number of them may live in one process."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain import keys
from chalicelib.domain.instances import Presence
from chalicelib.domain.instants import DAY, MINUTE, SECOND, iso
from chalicelib.domain.retention import Retention
from chalicelib.domain.services import SERVER, Traffic
from chalicelib.domain.usage import StorageUsage
from chalicelib.planning.kernel.purchases import Describe
from chalicelib.runtime.embedded import REFRESH_EVERY, EmbeddedRoot
from chalicelib.runtime.lambda_ import LambdaRoot
from chalicelib.runtime.local_fleet import ensure_fleet
from chalicelib.runtime.ports import Ports
from chalicelib.runtime.settings import MOST_LOCAL_HOSTS, LambdaSettings, ServerSettings, server_settings
from chalicelib.store import nouns
from chalicelib.store.announcing_store import AnnouncingStore
from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.history import HistoryStore
from chalicelib.store.sqlite import SqliteStore
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.pace import EMBEDDED, PER_CALL
from chalicelib.usecases.services.traffic import report
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.api.test_services import service
from tests.harness.server import until
from tests.world.plane import World
from tests.world.time import Clock


@dataclass
class Aws:
    """S3 and Lambda as far as a root asks them, in memory; one object is either service."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    sent: list[tuple[str, Any]] = field(default_factory=list)  # function → event

    def __call__(self, service: str) -> Aws:
        assert service in ("s3", "lambda")
        return self

    def put_object(self, Bucket: str, Key: str, Body: bytes) -> None:
        self.blobs[f"{Bucket}/{Key}"] = Body

    def get_object(self, Bucket: str, Key: str) -> Any:
        return {"Body": io.BytesIO(self.blobs[f"{Bucket}/{Key}"])}

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> None:
        assert InvocationType == "Event", "nobody waits for a function"
        self.sent.append((FunctionName, json.loads(Payload)))


def stack(name: str, **changes: str) -> LambdaSettings:
    environ = {
        "DSTACK_TABLE": name,
        "DSTACK_BUCKET": name,
        "DSTACK_WAKE_FUNCTION": f"{name}-reconcile",
        "DSTACK_PROVIDER_FUNCTION": f"{name}-provider",
        "DSTACK_KEYS": f"/dstack-{name}",
        "DSTACK_API_URL": f"https://{name}.example.com",
    }
    secrets = {key: hashlib.sha256(f"{name}/{key}".encode()).hexdigest() for key in ("install-key", "master-key")}
    return LambdaSettings.read(lambda path, names: secrets, {**environ, **changes})


@dataclass
class Embedded:
    folder: Path
    clock: Clock = field(default_factory=Clock)

    def root(self, name: str, **settings: Any) -> EmbeddedRoot:
        chosen = ServerSettings(data_dir=self.folder / name, **settings)
        chosen.data_dir.mkdir(exist_ok=True)
        made = EmbeddedRoot(chosen, ServerConfig(projects=()), f"http://{name}:3000", clock=self.clock)
        self.made.append(made)
        return made

    made: list[EmbeddedRoot] = field(default_factory=list)

    def rig(self, name: str, **settings: Any) -> RootRig:
        root = self.root(name, **settings)
        _, project = first_start(root.plane, ADMIN)
        return RootRig(World(root.plane, self.clock, self.folder), project, root)


@dataclass
class RootRig(Rig):
    root: EmbeddedRoot

    def ages(self) -> list[dict[str, Any]]:
        return list(self.ok("P/runs/get_plan", {"run_spec": task()})["offers_as_of"])


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    found = Embedded(tmp_path)
    yield found
    for root in found.made:
        root.close()


@pytest.mark.slow
def test_both_roots_fill_in_the_same_list_and_differ_where_it_says(embedded: Embedded) -> None:
    one, two = embedded.root("here").ports, LambdaRoot(stack("there"), clients=Aws()).ports
    differing = {f.name for f in fields(Ports) if type(getattr(one, f.name)) is not type(getattr(two, f.name))}
    assert differing >= {"blobs", "logs", "wake", "effects", "notify_agents", "clock"}
    assert isinstance(one.store, AnnouncingStore) and isinstance(one.store.below, HistoryStore)
    assert isinstance(two.store, AnnouncingStore) and isinstance(two.store.below, HistoryStore)
    assert (type(one.store.below.below), type(two.store.below.below)) == (SqliteStore, DynamoStore)
    assert (one.pace, two.pace) == (EMBEDDED, PER_CALL)
    assert (one.server_url, two.server_url) == ("http://here:3000", "https://there.example.com")


def test_promises_of_quiet_agents_wait_in_the_embedded_root_and_are_written_when_it_closes(embedded: Embedded) -> None:
    root = embedded.root("here")
    presence = Presence(instance_id="i", project_id="p")
    assert root.plane.renew is not None and LambdaRoot(stack("there"), clients=Aws()).plane.renew is None
    root.plane.renew(nouns.put(presence))
    assert root.ports.store.get(keys.presence("i")) is None
    embedded.made.remove(root)
    root.close()
    store = SqliteStore(embedded.folder / "here" / "plane.db")
    assert store.get(keys.presence("i")) is not None
    store.close()


def test_events_expire_in_both_roots_when_their_settings_say(embedded: Embedded) -> None:
    retention = Retention(events=2)
    one, two = (
        embedded.root("here", retention=retention),
        LambdaRoot(stack("t", DSTACK_RETAIN_EVENTS="2"), clients=Aws()),
    )
    assert one.plane.retention == two.plane.retention == retention
    first_start(one.plane, ADMIN)
    (event,) = one.ports.store.query("main", keys.events_of("")).records
    assert event.expires_at == (keys.event_at(event.key) + 2 * DAY) // SECOND


@pytest.mark.slow
def test_a_server_that_starts_again_has_no_requests_under_way(embedded: Embedded) -> None:
    """It may have been killed in the middle of some, and nobody may ever come again."""
    rig = embedded.rig("here")
    run_id = submit(rig, service(replicas="0..1", scaling={"metric": "rps", "target": 1}))["id"]
    report(rig.root.plane, SERVER, [Traffic(run_id=run_id, door=SERVER, at=rig.world.clock.now(), held=1)])
    rig.root.start()
    found = nouns.find(rig.root.ports.store, Traffic, keys.traffic(run_id, SERVER))
    assert found is not None
    assert (found.quiet, found.held) == (True, 0)


def test_as_many_hosts_as_one_machine_may_be_are_there_at_once_each_with_its_event(embedded: Embedded) -> None:
    rig = embedded.rig("here")
    places = ensure_fleet(rig.root.plane, rig.project, "1", MOST_LOCAL_HOSTS)
    events = rig.ok("/api/events/list", {"include_target_types": ["instance"], "limit": 100})
    instance_ids = [target["id"] for event in events for target in event["targets"] if target["type"] == "instance"]
    assert {event["message"] for event in events} == {"created"}
    assert (
        sorted(instance_ids) == sorted(place.instance_id for place in places)
        and len(set(instance_ids)) == MOST_LOCAL_HOSTS
    )


def test_a_server_measures_its_own_folder(embedded: Embedded) -> None:
    root = embedded.root("here")
    before = {part.name: part.bytes for part in root.plane.measure().parts}
    root.ports.blobs.put("a/b", b"12345")
    after = {part.name: part.bytes for part in root.plane.measure().parts}
    assert after["blobs"] - before["blobs"] == 5 and after["database"] > 0
    assert LambdaRoot(stack("there"), clients=Aws()).plane.measure() == StorageUsage()


def test_what_a_root_is_made_of_is_what_its_parts_work_with(embedded: Embedded) -> None:
    root = embedded.root("one")
    ports, plane = root.ports, root.plane
    for name in {f.name for f in fields(Ports)} & plane.__dataclass_fields__.keys():
        assert getattr(plane, name) == getattr(ports, name), name
    acting = root.executor.here
    assert root.reconciler.store is acting.store is ports.store
    assert acting.server_url == ports.server_url
    assert plane.install_id == acting.install_id == root.install_id
    assert root.plane is plane and root.reconciler is root.reconciler


@pytest.mark.slow
def test_a_service_in_aws_needs_a_gateway_and_the_refusal_says_what_to_add(tmp_path: Path) -> None:
    """Lambda can't stream. The one world serves as that root does, the other as this machine's."""
    spec = {"configuration": {"type": "service", "port": 80, "commands": ["serve"]}}
    requests = {"P/runs/get_plan": {"run_spec": spec}, "P/runs/apply": {"plan": {"run_spec": spec}, "force": False}}
    there = Rig.at(tmp_path, serves=LambdaRoot(stack("there"), clients=Aws()).plane.serves)
    for path, body in requests.items():
        error = there.refused(path, body)
        assert error.startswith("gateway: a service needs a gateway here")
        assert "`type: gateway`" in error and "`gateway: NAME`" in error
    here = Embedded(tmp_path / "here")
    here.folder.mkdir()
    rig = here.rig("server")
    for path, body in requests.items():
        rig.ok(path, body)
    rig.root.close()


def test_two_stacks_in_one_process_keep_apart() -> None:
    clouds = [Aws(), Aws()]
    roots = [LambdaRoot(stack(f"stack-{n}"), clients=cloud) for n, cloud in enumerate(clouds)]
    for n, root in enumerate(roots):
        root.ports.wake([f"run/{n}"])
        root.ports.effects.submit(Describe(f"instance/{n}", "aws", 1))
        root.ports.blobs.put("name", b"%d" % n)
    assert roots[0].install_id != roots[1].install_id
    assert roots[0].ports.install_key != roots[1].ports.install_key
    for n, cloud in enumerate(clouds):
        assert [function for function, _ in cloud.sent] == [f"stack-{n}-reconcile", f"stack-{n}-provider"]
        assert cloud.sent[0][1] == {"units": [f"run/{n}"], "hops": 1}
        assert cloud.blobs == {f"stack-{n}/name": b"%d" % n}


def test_in_aws_a_backend_that_was_configured_has_its_offers_fetched_at_once() -> None:
    cloud = Aws()
    LambdaRoot(stack("s"), clients=cloud).ports.backends.invalidate("aws-p")
    assert cloud.sent == [("s-provider", {"refresh": "aws-p", "hops": 1})], "of that account alone"


def test_offers_that_cannot_be_asked_for_fail_nothing() -> None:
    """The configuration is committed by then."""

    def none(service: str) -> Any:
        raise ConnectionError(f"no {service}")

    LambdaRoot(stack("s"), clients=none).ports.backends.invalidate("aws-p")


def test_a_hundred_hints_an_event() -> None:
    cloud = Aws()
    LambdaRoot(stack("s"), clients=cloud).ports.wake([f"run/{n:03}" for n in range(250)] * 2)
    assert [len(event["units"]) for _, event in cloud.sent] == [100, 100, 50]


def test_what_a_stack_says_of_its_pace_and_images_is_obeyed() -> None:
    settings = stack("s", DSTACK_SYNC_SECONDS="0.5", DSTACK_DOCKER_BASE_IMAGE="mine:{python}")
    plane = LambdaRoot(settings, clients=Aws()).plane
    assert plane.pace == PER_CALL.at(0.5)
    assert plane.images.base == "mine:{python}"


def test_two_servers_in_one_process_keep_apart_and_nothing_runs_before_it_is_started(embedded: Embedded) -> None:
    before = threading.enumerate()
    rigs = [embedded.rig(name) for name in ("one", "two")]
    submit(rigs[0], task("hello"))
    assert [len(rig.ok("/api/runs/list", {})) for rig in rigs] == [1, 0]
    assert set(threading.enumerate()) <= set(before)


def aged(taken_at: str | None) -> dict[str, str | None]:
    return {"backend": "dstack", "taken_at": taken_at, "error": None, "prices": None, "outlived": None}


def test_a_simulated_cloud_has_offers_when_the_start_is_over(embedded: Embedded) -> None:
    rig = embedded.rig("one", fake_cloud=True)
    assert rig.ages() == [aged(None)]
    rig.root.start()
    assert rig.ages() == [aged(iso(embedded.clock.at))]
    assert rig.ok("P/gpus/list", {"run_spec": task()})["gpus"]


def test_a_simulated_cloud_sells_under_the_name_it_is_given(embedded: Embedded) -> None:
    rig = embedded.rig("one", fake_cloud=True, fake_cloud_name="aws")
    rig.root.start()
    assert [age["backend"] for age in rig.ages()] == ["aws"]
    plan = rig.ok("P/fleets/get_plan", {"spec": fleet()})
    assert {offer["backend"] for offer in plan["offers"]} == {"aws"}


def test_offers_sweeps_and_erasing_come_again_on_schedules_of_their_own(embedded: Embedded) -> None:
    root = embedded.root("one", fake_cloud=True)
    assert (root.refreshes.work, root.refreshes.every) == (root.keep_catalog, 600.0)
    assert (root.sweeps.work, root.sweeps.every) == (root.sweep_accounts, 300.0)
    assert (root.erasures.work, root.erasures.every) == (root.erase, 600.0)


def test_offers_that_a_refresh_does_not_bring_stay_with_their_age_and_the_reason(embedded: Embedded) -> None:
    rig = embedded.rig("one", fake_cloud=True)
    rig.root.refresh_accounts()
    before = rig.ages()[0]["taken_at"]
    script = {"faults": [{"call": "offers", "error": "Throttled"}]}
    (embedded.folder / "one" / "fake-cloud" / "script.json").write_text(json.dumps(script))
    embedded.clock.pass_(REFRESH_EVERY)
    rig.root.refresh_accounts()
    (age,) = rig.ages()
    assert age["taken_at"] == before and "Throttled" in age["error"]
    assert rig.ok("P/gpus/list", {"run_spec": task()})["gpus"]
    embedded.clock.pass_(REFRESH_EVERY)
    rig.root.refresh_accounts()  # the fault was for one call
    assert rig.ages() == [aged(iso(embedded.clock.at))]


def test_offers_that_hold_for_less_come_more_often(embedded: Embedded) -> None:
    root = embedded.root("one", fake_cloud=True)
    (account,) = root.ports.backends.accounts()
    account.facts = account.facts.with_(offers_last=2 * MINUTE)
    root.keep_catalog()
    first = root.catalog.ages("")["dstack"].taken_at
    assert first and root.refreshes.every == 120.0, "as often as the shortest-lived need it"
    account.facts = account.facts.with_(live_offers=True)
    root.keep_catalog()
    assert root.refreshes.every == 600.0, "a market lists none"
    account.facts = account.facts.with_(offers_last=DAY, live_offers=False)
    embedded.clock.pass_(60)
    root.keep_catalog()
    embedded.clock.pass_(60)
    assert root.catalog.ages("")["dstack"].taken_at == first + 60 * SECOND, "and no offers are older than ten minutes"


def test_a_cloud_that_could_not_answer_at_first_is_asked_again_within_the_same_turn(embedded: Embedded) -> None:
    rig = embedded.rig("one", fake_cloud=True)
    script = {"faults": [{"call": "offers", "error": "Transient"}]}
    (embedded.folder / "one" / "fake-cloud").mkdir(parents=True, exist_ok=True)
    (embedded.folder / "one" / "fake-cloud" / "script.json").write_text(json.dumps(script))
    rig.root.retry_offers = 0.0
    rig.root.keep_catalog()
    assert (rig.root.catalog.awaited(), rig.ages()[0]["error"]) == ([], None)


def test_a_cloud_that_is_gone_from_the_settings_is_gone_from_the_offers(embedded: Embedded) -> None:
    first = embedded.rig("one", fake_cloud=True)
    first.root.refresh_accounts()
    again = embedded.rig("one", fake_cloud=False)
    again.root.start()
    until("the first refresh to end", lambda: again.ages() == [])
    assert again.ok("P/gpus/list", {"run_spec": task()})["gpus"] == []


def test_a_started_root_does_what_waited_for_it(embedded: Embedded) -> None:
    rig = embedded.rig("one", fake_cloud=True)
    submit(rig, task("hello"))
    rig.root.start()
    run = until(
        "the waiting run to be looked at",
        lambda: (run := rig.ok("P/runs/get", {"run_name": "hello"})) and run["status"] != "submitted" and run,
    )
    assert run["termination_reason"] is not None  # there is no fleet that it could run in


@pytest.mark.slow
def test_both_roots_trace_runs_where_somebody_collects_traces(embedded: Embedded) -> None:
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    one = embedded.root("traced", traces=True, trace_headers="authorization=Bearer%20t")
    two = LambdaRoot(stack("traced", **there), clients=Aws())
    assert (one.plane.traces, two.plane.traces) == (True, True)
    assert one.run_traces is not None and two.run_traces is not None and one.run_traces.run() == 0
    quiet = embedded.root("quiet")
    assert not quiet.plane.traces and quiet.run_traces is None
    assert LambdaRoot(stack("quiet"), clients=Aws()).run_traces is None


def test_a_collectors_token_isnt_left_to_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t")
    found = server_settings()
    assert found.traces and found.trace_headers == "authorization=Bearer%20t" and "Bearer" not in repr(found)
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in os.environ
