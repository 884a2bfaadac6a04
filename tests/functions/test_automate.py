"""Rules act on stored configurations: as who stored them, once for each event, or say why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.domain import keys, state_changes
from chalicelib.domain.automations import MOST_A_DAY, RuleCount
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.automation import AutomationOrder
from chalicelib.domain.tenants import Member, ProjectRole
from chalicelib.errors import Contended, Invalid
from chalicelib.runtime.lambda_ import SOURCE
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.runs.automations import LARGEST
from chalicelib.usecases.runs.rule_actions import carry_out
from functions import automate
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_access_tokens import made
from tests.api.test_fleets import create
from tests.api.test_races import contended
from tests.functions.test_handlers import Stack
from tests.functions.test_policies import deployed, spare
from tests.runtime.test_webhooks_real import block
from tests.world import nouns as b
from tests.world.calls import Policed
from tests.world.ports import accounts

EVENT = "6628ef34-2e9a-4af5-aab4-144f175852f7"


def order(action: str = "apply", configuration: str = "hello", event: str = EVENT, **more: str) -> dict[str, str]:
    return {
        "rule": "again",
        "event": event,
        "project": "main",
        "configuration": configuration,
        "action": action,
        **more,
    }


def stored(rig: Rig, spec: dict[str, Any] | None = None, **more: str) -> None:
    rig.ok("P/automations/add", {"spec": spec or spec_of("hello")}, **more)


def spec_of(name: str, **fields: Any) -> dict[str, Any]:
    return task(name, **fields)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack.at(tmp_path)
    yield made
    made.root.close()


@pytest.fixture
def rig(stack: Stack) -> Rig:
    return stack.rig


def ask(stack: Stack, **given: Any) -> str:
    stack.rig.world.clock.pass_(1)
    reason: str = automate.handler(order(**given), None, stack.root)["refused"]
    return reason


def runs(rig: Rig) -> list[dict[str, Any]]:
    return list(rig.ok("/api/runs/list", {"project_name": "main"}))


def event_messages(rig: Rig) -> list[str]:
    events = rig.ok("/api/events/list", {"ascending": True})
    return [one["message"] for one in events if "rule again" in one["message"]]


def test_an_event_that_comes_twice_applies_the_configuration_once(stack: Stack, rig: Rig) -> None:
    stored(rig)
    assert ask(stack) == "" and ask(stack) == ""
    (run,) = runs(rig)
    assert (run["run_spec"]["run_name"], run["user"]) == ("hello", "admin")
    assert ask(stack, event="when there is nothing to change") == ""
    rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": True})
    stack.reconcile()
    assert ask(stack) == ask(stack, event="when there is nothing to change") == ""
    assert [each["id"] for each in runs(rig)] == [run["id"]], "not even once its run has ended"
    assert event_messages(rig) == ["hello is applied by rule again"] * 2


def test_what_was_stored_with_a_limited_token_counts_toward_it(stack: Stack, rig: Rig) -> None:
    stored(rig, token=made(rig, "run", "project", dollars_a_day=5))
    assert ask(stack) == ""
    target = nouns.find_target(rig.world.store, keys.run_name(rig.project.id, "hello"))
    run = None if target is None else nouns.find(rig.world.store, Run, keys.run(target[0]))
    assert run is not None and run.limit is not None and run.limit.dollars == 5.0


def test_another_event_or_another_rule_is_another_order(stack: Stack, rig: Rig) -> None:
    stored(rig)
    stored(rig, spec_of("other"))
    ask(stack)
    ask(stack, configuration="other", event=EVENT.replace("6", "7"))
    ask(stack, configuration="hello", rule="second")
    assert {run["run_spec"]["run_name"] for run in runs(rig)} == {"hello", "other"}
    assert event_messages(rig) == ["hello is applied by rule again", "other is applied by rule again"]


def test_the_guides_rule_means_a_run_that_failed_and_makes_an_order_of_it(stack: Stack, rig: Rig) -> None:
    stored(rig, spec_of("retrain"))
    pattern, (target,) = json.loads(block("pattern.json")), json.loads(block("targets.json"))
    failed, stopped = (event_of("train", ends) for ends in ("failed", "terminated"))
    assert meant(pattern, failed) and not meant(pattern, stopped) and not meant(pattern, event_of("test", "failed"))
    paths, text = target["InputTransformer"]["InputPathsMap"], target["InputTransformer"]["InputTemplate"]
    for name, path in paths.items():
        value: Any = failed
        for part in path.removeprefix("$.").split("."):
            value = value[part]
        text = text.replace(f"<{name}>", json.dumps(value))
    assert automate.handler(json.loads(text), None, stack.root) == {"refused": ""}
    assert [run["run_spec"]["run_name"] for run in runs(rig)] == ["retrain"]


def event_of(name: str, status: str) -> dict[str, Any]:
    """How the bus tells that a run has ended so."""
    target = Target(type="run", id="r", name=name)
    event = Event(id=EVENT, at=b.NOW, project_id="p", type=EventType.status, after=status, targets=(target,))
    return {"source": SOURCE, "detail": json.loads(state_changes.of(event, "main").model_dump_json())}


def meant(pattern: Any, value: Any) -> bool:
    """As EventBridge compares them, as far as the guide's pattern goes: a list says which values will do."""
    if isinstance(pattern, dict):
        return all(name in value and meant(each, value[name]) for name, each in pattern.items())
    return value in pattern


def test_stopping_and_deleting_what_it_describes(stack: Stack, rig: Rig) -> None:
    stored(rig)
    submit(rig, spec_of("hello"))
    assert ask(stack, action="stop") == ""
    for _ in range(3):
        stack.reconcile()
        stack.hints += [f"run/{runs(rig)[0]['id']}"]
    (run,) = runs(rig)
    assert (run["status"], run["termination_reason"]) == ("terminated", "stopped_by_user")
    assert ask(stack, action="stop", event="second") == "", "what has ended stays as it is"
    assert ask(stack, action="delete", event="third") == "" and runs(rig) == []
    assert "no run hello" in ask(stack, action="delete", event="fourth")
    assert event_messages(rig)[-1] == "rule again can't delete hello: There is no run hello in project main."
    submit(rig, spec_of("hello"))
    assert ask(stack, action="stop", event="second") == "" and runs(rig)[0]["status"] == "submitted", "it was done then"


def test_what_an_order_changes_is_committed_with_the_word_that_it_is_done(stack: Stack, rig: Rig) -> None:
    stored(rig)
    inner, commits = stack.root.ports.store, list[set[str]]()

    class Noted:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def commit(self, changes: Any) -> None:
            commits.append({change.key.pk.partition("/")[0] for change in changes})
            inner.commit(changes)

    root = type(stack.root)(replace(stack.root.ports, store=Noted()))
    assert automate.handler(order(), None, root) == {"refused": ""}
    (done,) = (each for each in commits if "automated" in each)
    assert "run" in done


def test_fleets_are_applied_and_deleted_and_cant_be_stopped(stack: Stack, rig: Rig) -> None:
    stored(rig, fleet("pool"))
    assert ask(stack, configuration="pool") == ""
    assert rig.ok("P/fleets/get", {"name": "pool"})["name"] == "pool"
    assert "fleet can't be stopped" in ask(stack, action="stop", configuration="pool", event="second")
    assert ask(stack, action="delete", configuration="pool", event="third") == ""
    assert rig.ok("P/fleets/get", {"name": "pool"})["status"] == "terminating"


def test_volumes_are_applied_and_deleted_and_cant_be_stopped(stack: Stack, rig: Rig) -> None:
    cloud = accounts(BackendFacts(name="aws", volumes=True, largest_volume=16_000))
    stack.root = type(stack.root)(replace(stack.root.ports, backends=cloud))
    rig = Rig(replace(rig.world, plane=stack.root.plane), rig.project)
    where = {"backend": "aws", "region": "eu-west-1", "size": "100GB"}
    spec = {"configuration": {"type": "volume", "name": "data", **where}}
    stored(rig, spec)
    assert ask(stack, configuration="data") == ""
    assert rig.ok("P/volumes/get", {"name": "data"})["status"] == "submitted"
    assert "volume can't be stopped" in ask(stack, action="stop", configuration="data", event="second")
    assert ask(stack, action="delete", configuration="data", event="third") == ""
    assert "is being deleted" in rig.refused("P/volumes/create", spec)


@pytest.mark.parametrize("lost", ["membership", "active"])
def test_it_is_refused_once_its_author_has_lost_their_rights(stack: Stack, rig: Rig, lost: str) -> None:
    token = rig.user("ann", ProjectRole.user)
    rig.ok("P/automations/add", {"spec": spec_of("hello")}, token=token)
    assert ask(stack) == "" and runs(rig)[0]["user"] == "ann"
    if lost == "active":
        rig.deactivate("ann")
    else:
        ann = nouns.find_target(rig.world.plane.store, keys.user_name("ann"))
        assert ann is not None
        rig.world.plane.store.commit([Delete(keys.member(rig.project.id, ann[0]))])
    why = ask(stack, action="stop", event="second")
    reason = {"membership": "isn't a member of main", "active": "is no longer an active user"}[lost]
    assert f"ann, who stored the configuration hello, {reason}" in why
    assert runs(rig)[0]["status"] == "submitted" and why in event_messages(rig)[-1]
    assert ask(stack, action="stop", event="second") == why, "and stays refused"


def test_rights_are_those_of_the_author_and_not_of_the_rule(stack: Stack, rig: Rig) -> None:
    """Stored by an admin who is a plain member by now: what only admins may do is refused."""
    token = rig.user("ann", ProjectRole.admin)
    rig.ok("P/automations/add", {"spec": spec_of("hello", privileged=True)}, token=token)
    ann = nouns.find_target(rig.world.plane.store, keys.user_name("ann"))
    assert ann is not None
    member = nouns.find(rig.world.plane.store, Member, keys.member(rig.project.id, ann[0]))
    assert member is not None
    rig.save(member.with_(role=ProjectRole.user))
    assert "privileged" in ask(stack) and runs(rig) == []
    rig.save(rig.world.again(member).with_(role=ProjectRole.admin))
    assert ask(stack, event="second") == "" and len(runs(rig)) == 1


@pytest.mark.parametrize("role", [ProjectRole.user, ProjectRole.admin])
def test_who_may_not_change_a_fleet_of_hosts_has_no_rule_that_does(stack: Stack, rig: Rig, role: ProjectRole) -> None:
    """Somebody else made it, so only an admin of the project may."""
    hosts = fleet("lab", nodes=None, ssh_config={"hosts": []})
    create(rig, hosts)
    rig.ok("P/automations/add", {"spec": hosts}, token=rig.user("ann", role))
    for action in ("apply", "delete"):
        why = ask(stack, action=action, configuration="lab", event=action)
        assert ("Only admins and managers" in why) == (role is ProjectRole.user), why


def test_what_is_not_stored_and_a_project_that_is_gone_are_told(stack: Stack, rig: Rig) -> None:
    assert "No configuration hello is stored" in ask(stack)
    assert ask(stack, project="gone") == "its project is gone"
    stored(rig)
    assert "No configuration hello is stored" in ask(stack), "an order is answered once"
    assert ask(stack, event="second") == ""


def test_an_event_that_is_no_order_is_refused_with_every_problem(stack: Stack) -> None:
    with pytest.raises(Invalid) as refused:
        automate.handler({"detail": {}, "action": "explode", "rule": "a b"}, None, stack.root)
    error = str(refused.value)
    assert all(name in error for name in ("event", "configuration", "action", "rule", "detail"))


def test_two_deliveries_at_once_have_one_effect(stack: Stack, rig: Rig) -> None:
    """The second is carried out between the first one's decision and its commit."""
    stored(rig)
    submit(rig, spec_of("hello"))
    inner = stack.root.ports.store
    first = iter([True])

    class Raced:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def commit(self, changes: Any) -> None:
            if any(change.key.pk.startswith("automated/") for change in changes) and next(first, False):
                ask(stack, action="stop")
            inner.commit(changes)

    root = type(stack.root)(replace(stack.root.ports, store=Raced()))
    assert automate.handler(order("stop"), None, root) == {"refused": ""}
    assert event_messages(rig) == ["hello is stopped by rule again"]


def test_an_order_that_others_are_always_ahead_of_comes_again(rig: Rig) -> None:
    stored(rig)
    with pytest.raises(Contended, match="What rule again asks for about hello keeps changing"):
        carry_out(contended(rig), AutomationOrder.model_validate(order()))


@pytest.mark.slow
def test_it_needs_what_its_policy_allows_and_nothing_else(stack: Stack, rig: Rig) -> None:
    """Also where a run would change another that lives, and a fleet is in use."""
    stack.submit_run()
    stack.perform()
    policed = Policed()
    root = deployed(stack.root, policed, "automate")
    ann = rig.user("ann", ProjectRole.user)
    rig.ok("P/automations/add", {"spec": spec_of("hers")}, token=ann)
    stored(rig, spec_of("hello", priority=7))
    stored(rig, fleet("pool"))
    stored(rig, fleet("another"))
    orders = [("apply", "hers"), ("apply", "hello"), ("delete", "pool"), ("apply", "pool"), ("stop", "hers")]
    orders.append(("apply", "another"))
    reasons = [automate.handler(order(*one, str(n)), None, root)["refused"] for n, one in enumerate(orders)]
    assert [bool(each) for each in reasons] == [False, False, True, False, False, False] and "in use" in reasons[2]
    for _ in range(3):
        stack.hints += [f"run/{run['id']}" for run in runs(rig)]
        stack.reconcile()
    assert automate.handler(order("delete", "hers", "last"), None, root) == {"refused": ""}
    assert policed.refused == []
    assert spare(policed, "automate", "List") == set()


def test_who_may_change_or_delete_what_is_stored(rig: Rig) -> None:
    ann, bob = rig.user("ann", ProjectRole.user), rig.user("bob", ProjectRole.user)
    rig.world.clock.pass_(1)
    rig.ok("P/automations/add", {"spec": spec_of("hello", env={"PASSWORD": "hush"})}, token=ann)
    (shown,) = rig.ok("P/automations/list", {}, token=bob)
    assert (shown["name"], shown["type"], shown["user"]) == ("hello", "task", "ann") and "hush" not in str(shown)
    assert "was stored by ann" in rig.refused("P/automations/add", {"spec": spec_of("hello")}, token=bob)
    assert "was stored by ann" in rig.refused("P/automations/delete", {"names": ["hello"]}, token=bob)
    rig.world.clock.pass_(1)
    rig.ok("P/automations/add", {"spec": spec_of("hello")}, token=ann)
    rig.world.clock.pass_(1)
    rig.ok("P/automations/delete", {"names": ["hello"]})
    assert rig.ok("P/automations/list", {}) == []
    messages = [one["message"] for one in rig.ok("/api/events/list", {"ascending": True})]
    assert messages[-3:] == ["configuration hello stored", "configuration hello changed", "configuration hello deleted"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "only runs, fleets and volumes"),
        ({"configuration": {"type": "gateway", "name": "g"}}, "only runs, fleets and volumes"),
        (task(None), "needs a name"),
        (task("hello", nodes=0), "nodes"),
        ({**task("hello"), "repo_code_hash": "0" * 64}, "can't have files or code that are uploaded"),
        ({**task("hello"), "file_archives": [{"id": "a", "path": "p"}]}, "can't have files or code that are uploaded"),
        ({"configuration": {"type": "fleet", "name": "x y", "nodes": 1}}, "name"),
        ({"configuration": {"type": "volume", "name": "data", "backend": "aws", "region": "r", "size": 1}}, "backend"),
    ],
)
def test_what_couldnt_be_applied_isnt_stored(rig: Rig, spec: dict[str, Any], message: str) -> None:
    assert message in rig.refused("P/automations/add", {"spec": spec})
    assert rig.ok("P/automations/list", {}) == []


def test_what_is_too_large_for_a_record_isnt_stored(rig: Rig) -> None:
    """A fleet: of a run that large its jobs would get too much."""
    rest = LARGEST - len(orjson.dumps(fleet("hello", regions=[""])))
    for long in ("é" * (rest // 2), "a" * rest):
        rig.ok("P/automations/add", {"spec": fleet("hello", regions=[long])})
        longer = fleet("hello", regions=[long + "é"])
        assert "at most 150 KB can be stored" in rig.refused("P/automations/add", {"spec": longer})


def test_what_is_stored_is_sealed(rig: Rig) -> None:
    stored(rig, spec_of("hello", env={"PASSWORD": "hush"}))
    record = rig.record(keys.automation(rig.project.id, "hello"))
    assert b"hush" not in record.body and b"echo" not in record.body


@pytest.mark.slow
def test_a_rule_that_causes_what_it_acts_on_stands_still(stack: Stack, rig: Rig) -> None:
    """One for every event, whose refusals are events, as a bus would bring them."""
    rig.world.clock.pass_(20 * 365 * DAY // SECOND)  # the store drops what has expired by its own clock
    rig.ok("P/secrets/create_or_update", {"name": "first", "value": "x"})
    rounds: list[str] = []
    while len(rounds) < MOST_A_DAY + 20:
        (newest,) = rig.ok("/api/events/list", {"limit": 1})
        if newest["id"] in rounds:
            break
        rounds.append(newest["id"])
        ask(stack, event=newest["id"])
    assert len(rounds) == MOST_A_DAY + 2 and "acted 100 times within a day" in newest["message"]
    stored(rig)
    assert "acted 100 times" in ask(stack, event="later") and runs(rig) == []
    assert ask(stack, rule="another", event="later") == "", "each rule by itself"
    rig.world.clock.pass_(DAY // SECOND)
    assert ask(stack, event="tomorrow") == ""
    assert "acted 100 times" in ask(stack, event="later"), "as it was answered then"


def test_orders_of_one_rule_at_once_are_all_carried_out(stack: Stack, rig: Rig) -> None:
    """Each counts, so another that comes first is a conflict, and nobody's fault."""
    stored(rig)
    stored(rig, spec_of("other"))
    inner = stack.root.ports.store
    others = iter(["first", "second"])

    class Raced:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def commit(self, changes: Any) -> None:
            if any(change.key.pk.startswith("automated/") for change in changes) and (event := next(others, "")):
                ask(stack, action="stop", configuration="other", event=event)
            inner.commit(changes)

    root = type(stack.root)(replace(stack.root.ports, store=Raced()))
    assert automate.handler(order(), None, root) == {"refused": ""}
    assert [run["run_spec"]["run_name"] for run in runs(rig)] == ["hello"]
    count = nouns.find(inner, RuleCount, keys.rule_count(rig.project.id, "again"))
    assert count is not None and count.orders == 3
