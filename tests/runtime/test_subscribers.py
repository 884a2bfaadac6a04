"""Webhooks and rules on a real store: what they are sent, in which order, how often, and what becomes of failures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from chalicelib.configuration.server import parse_server
from chalicelib.configuration.server_spec import RuleConfig, ServerConfig, WebhookConfig
from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, iso
from chalicelib.domain.keys import Key
from chalicelib.domain.state_changes import StateChange
from chalicelib.domain.subscriptions import Subscription
from chalicelib.engine.subscriptions import EventFollower
from chalicelib.errors import Invalid, Refused
from chalicelib.planning.projects import subscriptions
from chalicelib.runtime.subscribers import Subscribers
from chalicelib.runtime.webhooks import ReceiverAnswer
from chalicelib.store import nouns
from chalicelib.store.port import Record
from chalicelib.store.sqlite import SqliteStore
from tests.api.rig import submit, task
from tests.runtime.test_roots import Embedded, RootRig

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
HOOK = f"webhooks: [{{name: ops, url: 'https://ops.example.com/hook?x=1', secret: '{SECRET}'}}]\n"
RULE = (
    "rules: [{name: again, when: {target: run, type: created, name: first}, action: apply, project: main, "
    "configuration: second}]\n"
)


def checked(headers: Mapping[str, str], body: bytes, now: float) -> dict[str, Any]:
    """What a receiver does, in its own words: the specification's."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    right = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{right}"
    assert abs(now - int(headers["webhook-timestamp"])) < 300
    found: dict[str, Any] = json.loads(body)
    assert found["id"] == headers["webhook-id"] and found["version"] == 1
    return found


@dataclass
class Receiver:
    rig: RootRig
    status: int = 204
    retry_after: str = ""
    away: bool = False
    got: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverAnswer:
        if self.away:
            raise Refused("ops.example.com can't be reached: refused")
        assert url == "https://ops.example.com/hook?x=1"
        found = checked(headers, body, self.rig.world.clock.now() / SECOND)
        if self.status == 204:
            self.got.append(found)
        return ReceiverAnswer(self.status, self.retry_after)

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.got]


@dataclass
class Site:
    rig: RootRig
    receiver: Receiver
    made: Subscribers

    def follower(self, text: str) -> EventFollower:
        config = parse_server(f"projects: []\n{text}").config
        one: WebhookConfig | RuleConfig = (*(config.webhooks or ()), *(config.rules or ()))[0]
        kind = "webhook" if isinstance(one, WebhookConfig) else "rule"
        return self.made.follower(f"{kind}/{one.name}", one)

    def subscription(self, name: str = "webhook/ops") -> Subscription:
        found = nouns.find(self.rig.root.ports.store, Subscription, keys.subscription(name))
        assert found is not None
        return found

    def history(self) -> list[str]:
        return [one["id"] for one in self.rig.ok("/api/events/list", {"ascending": True})]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    embedded = Embedded(tmp_path)
    rig = embedded.rig("here")
    receiver = Receiver(rig)
    store: Any = rig.root.ports.store
    database = store.below.below
    assert isinstance(database, SqliteStore)
    yield Site(rig, receiver, Subscribers(lambda: rig.root.plane, database, receiver))
    for root in embedded.made:
        root.close()


@pytest.mark.slow
def test_a_webhook_gets_each_event_from_now_on_signed_and_once(site: Site) -> None:
    before = site.history()
    follower = site.follower(HOOK)
    follower.begin()
    submit(site.rig, task("first"))
    submit(site.rig, task("second"))
    follower.deliver_due()
    follower.deliver_due()
    assert sorted(site.receiver.ids) == sorted(set(site.history()) - set(before)) and len(site.receiver.ids) >= 4
    again = site.follower(HOOK)
    again.begin()
    again.deliver_due()
    assert len(set(site.receiver.ids)) == len(site.receiver.ids), "a restart goes on where it was"


def test_it_gets_only_what_was_asked_for(site: Site) -> None:
    follower = site.follower(HOOK.replace("}]", ", events: {target: run, type: created}}]"))
    follower.begin()
    submit(site.rig, task("first"))
    follower.deliver_due()
    assert [(one["target"]["type"], one["target"]["name"]) for one in site.receiver.got] == [("run", "first")]


def shown(site: Site) -> Any:
    """How its one subscription fares."""
    (subscription,) = site.rig.ok("/api/server/get_usage")["subscriptions"]
    return subscription


def test_a_failure_is_repeated_after_growing_pauses_and_nothing_is_skipped(site: Site) -> None:
    follower = site.follower(HOOK)
    follower.begin()
    submit(site.rig, task("first"))
    site.receiver.status = 500
    clock = site.rig.world.clock
    follower.deliver_due()
    follower.deliver_due()
    assert site.subscription().failures == 1, "not before its time"
    fares = {"name": "webhook/ops", "failures": 1, "dead": False, "error": "ops.example.com answered 500"}
    assert shown(site) == {**fares, "retry_at": iso(clock.now() + 2 * SECOND)}
    pauses = []
    for _ in range(4):
        pauses.append(((site.subscription().retry_at or 0) - clock.now()) // SECOND)
        clock.pass_(pauses[-1])
        follower.deliver_due()
    assert pauses == [2, 4, 8, 16]
    site.receiver.status = 204
    clock.pass_(3600)
    follower.deliver_due()
    assert len(site.receiver.ids) == len(set(site.receiver.ids)) >= 2
    assert (site.subscription().failures, site.subscription().error) == (0, "")


@pytest.mark.parametrize(
    ("retry_after", "pause"),
    [("120", 120), ("1", 2), ("", 2), ("soon", 2), ("-5", 2), ("999999999", 86_400), ("{date}", 300)],
)
def test_a_receiver_is_left_alone_for_as_long_as_it_asks(site: Site, retry_after: str, pause: int) -> None:
    clock = site.rig.world.clock
    follower = site.follower(HOOK)
    follower.begin()
    submit(site.rig, task("first"))
    date = format_datetime(datetime.fromtimestamp(clock.now() // SECOND + 300, UTC), usegmt=True)
    site.receiver.status, site.receiver.retry_after = 429, retry_after.format(date=date)
    follower.deliver_due()
    assert ((site.subscription().retry_at or 0) - clock.now()) // SECOND == pause
    clock.pass_(pause - 1)
    site.receiver.status = 204
    follower.deliver_due()
    assert site.receiver.got == []
    clock.pass_(1)
    follower.deliver_due()
    assert site.receiver.got and site.subscription().failures == 0


def test_a_list_means_any_of_its_members(site: Site) -> None:
    only = "events: {project: [main, other], target: [run, fleet], name: [first, second], type: created}}]"
    follower = site.follower(HOOK.replace("}]", f", {only}"))
    follower.begin()
    for name in ("first", "second", "third"):
        submit(site.rig, task(name))
    follower.deliver_due()
    assert [one["target"]["name"] for one in site.receiver.got] == ["first", "second"]


def test_after_too_many_it_is_dead_says_why_and_goes_on_with_the_next_start(site: Site) -> None:
    follower = site.follower(HOOK)
    follower.begin()
    submit(site.rig, task("first"))
    site.receiver.away = True
    for _ in range(subscriptions.MOST + 3):
        follower.deliver_due()
        site.rig.world.clock.pass_(3600)
    assert site.subscription().dead and site.subscription().failures == subscriptions.MOST
    fares = {"name": "webhook/ops", "failures": subscriptions.MOST, "dead": True, "retry_at": None}
    assert shown(site) == {**fares, "error": "ops.example.com can't be reached: refused"}
    site.receiver.away = False
    site.rig.world.clock.pass_(DAY / SECOND)
    follower.deliver_due()
    assert site.receiver.got == []
    submit(site.rig, task("second"))
    started = site.follower(HOOK)
    started.begin()
    started.deliver_due()
    names = {one["target"]["name"] for one in site.receiver.got}
    assert {"first", "second"} <= names and not site.subscription().dead


def test_whoever_dies_between_two_deliveries_repeats_no_more_than_one(site: Site) -> None:
    """The process is gone after the message was taken and before that is written."""

    class Killed(BaseException):
        pass

    follower = site.follower(HOOK)
    follower.begin()
    submit(site.rig, task("first"))
    submit(site.rig, task("second"))
    send = site.made._send
    assert send is not None
    taken = 0

    def dying(url: str, headers: Mapping[str, str], body: bytes) -> ReceiverAnswer:
        nonlocal taken
        taken += 1
        status = send(url, headers, body)
        if taken == 2:
            raise Killed
        return status

    site.made._send = dying
    dies = site.follower(HOOK)
    with pytest.raises(Killed):
        dies.deliver_due()
    site.made._send = send
    started = site.follower(HOOK)
    started.begin()
    started.deliver_due()
    ids = site.receiver.ids
    assert len(ids) == len(set(ids)) + 1 and ids[1] == ids[2]
    assert set(ids) <= set(site.history())


def test_a_defect_at_an_event_has_pauses_and_an_end_like_any_failure(site: Site) -> None:
    def defect(url: str, headers: Mapping[str, str], body: bytes) -> ReceiverAnswer:
        raise KeyError("nobody thought of this")

    begun = site.follower(HOOK)
    begun.begin()
    submit(site.rig, task("first"))
    send, site.made._send = site.made._send, defect
    follower = site.follower(HOOK)
    follower.deliver_due()
    follower.deliver_due()
    assert site.subscription().failures == 1, "not twice a second"
    assert site.subscription().error == "the server failed to deliver it because of a bug: KeyError"
    for _ in range(subscriptions.MOST):
        site.rig.world.clock.pass_(3600)
        follower.deliver_due()
    assert site.subscription().dead
    site.made._send = send
    mended = site.follower(HOOK)
    mended.begin()
    mended.deliver_due()
    assert site.receiver.ids and not site.subscription().dead


def test_a_record_that_cant_be_read_holds_up_nothing_behind_it(site: Site) -> None:
    follower = site.follower(HOOK)
    follower.begin()
    submit(site.rig, task("first"))
    store: Any = site.rig.root.ports.store
    torn, real = Record(Key("events/p", "1#x"), 1, b'[{"id"'), store.below.below

    class Torn:
        feed_end = real.feed_end

        def feed_after(self, place: int, limit: int) -> list[tuple[int, Record]]:
            page = real.feed_after(place, limit)
            return [(page[0][0] - 1, torn), *page] if page else []

    got: list[StateChange] = []
    reads = EventFollower("webhook/ops", store, Torn(), site.rig.world.clock, lambda _: True, got.append)
    reads.deliver_due()
    assert [change.target.name for change in got][:1] == ["first"] and site.subscription().failures == 0


def test_events_in_one_record_are_delivered_each_by_itself(site: Site) -> None:
    follower = site.follower(HOOK)
    follower.begin()
    submit(site.rig, task("first"))  # the run and its job: one commit, one record
    send, taken = site.made._send, 0
    assert send is not None

    def second_fails(url: str, headers: Mapping[str, str], body: bytes) -> ReceiverAnswer:
        nonlocal taken
        taken += 1
        return 503 if taken == 2 else send(url, headers, body)

    site.made._send = second_fails
    follower = site.follower(HOOK)
    follower.deliver_due()
    assert site.subscription().failures == 1 and len(site.receiver.ids) == 1
    site.rig.world.clock.pass_(10)
    follower.deliver_due()
    assert len(site.receiver.ids) == len(set(site.receiver.ids)) == 2


@pytest.mark.slow
def test_a_rule_acts_once_on_each_event_it_means(site: Site) -> None:
    site.rig.ok("P/automations/add", {"spec": task("second")})
    site.rig.world.clock.pass_(1)
    follower = site.follower(RULE)
    follower.begin()
    submit(site.rig, task("first"))
    follower.deliver_due()
    runs = site.rig.ok("/api/runs/list", {"project_name": "main"})
    assert {run["run_spec"]["run_name"] for run in runs} == {"first", "second"}
    known = site.subscription("rule/again")
    site.rig.root.ports.store.commit([nouns.put(known.with_(cursor=0, within=0))])  # as if it were told twice
    follower.deliver_due()
    assert len(site.rig.ok("/api/runs/list", {"project_name": "main"})) == 2
    messages = [one["message"] for one in site.rig.ok("/api/events/list", {})]
    assert messages.count("second is applied by rule again") == 1
    stored = site.rig.ok("P/automations/list")[0]["id"]
    for wanted in ({"target_automations": [stored]}, {"include_target_types": ["automation"]}):
        found = [one["message"] for one in site.rig.ok("/api/events/list", {**wanted, "ascending": True})]
        assert len(found) == 2 and found[-1] == "second is applied by rule again", "it was stored, and then applied"


def test_no_rule_acts_on_what_rules_did(site: Site) -> None:
    """It is refused, which is an event that it means; or it would be refused for ever."""
    follower = site.follower(RULE.replace("type: created, name: first", "type: [created, automated]").replace(
        "target: run, ", ""))  # fmt: skip
    follower.begin()
    submit(site.rig, task("first"))
    for _ in range(3):
        follower.deliver_due()
    messages = [one["message"] for one in site.rig.ok("/api/events/list", {})]
    refused = [line for line in messages if "can't apply second" in line]
    assert len(refused) == 2, "for the run and its job"


def test_the_feed_keeps_the_order_of_commits_and_forgets_what_everybody_has_passed(site: Site) -> None:
    store: Any = site.rig.root.ports.store
    database = store.below.below
    first, second = site.follower(HOOK), site.follower(HOOK.replace("ops,", "other,"))
    first.begin(), second.begin()
    start = database.feed_end()
    submit(site.rig, task("first"))
    places = [place for place, _ in database.feed_after(start, 100)]
    assert places == sorted(places) and places[-1] == database.feed_end() > start
    first.deliver_due()
    assert site.made.settled() == start
    database.trim_feed(site.made.settled())
    second.deliver_due()
    assert len(site.receiver.ids) == 2 * len(set(site.receiver.ids))
    database.trim_feed(site.made.settled())
    assert database.feed_after(0, 100) == [] and database.feed_end() == places[-1], "a place is never used again"


def test_settings_that_change_take_effect_and_what_is_gone_is_forgotten(site: Site) -> None:
    def follow(text: str) -> set[str]:
        site.made.follow(parse_server(f"projects: []\n{text}").config)
        return {one["name"] for one in site.rig.ok("/api/server/get_usage")["subscriptions"]}

    try:
        assert follow(HOOK + RULE) == {"webhook/ops", "rule/again"}
        assert follow(HOOK) == {"webhook/ops"}
        assert follow("") == set()
    finally:
        site.made.stop()
    assert ServerConfig(projects=()).webhooks is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HOOK.replace(SECRET, "hush"), "whsec_"),
        (HOOK.replace("https://ops.example.com/hook?x=1", "ftp://user:hush@x"), "isn't an address of http or https"),
        (HOOK.replace("ops.example.com", "ops.example.com:hush"), "isn't an address of http or https"),
        (HOOK.replace("ops.example.com", "ops.example.com:99999"), "isn't an address of http or https"),
        (HOOK.replace("ops.example.com", "[hush"), "isn't an address of http or https"),
        (HOOK.replace("/hook", "/höok hush"), "isn't an address of http or https"),
        (HOOK.replace("name: ops", "name: 'a b'"), "webhooks.0.name"),
        (RULE.replace("type: created, ", ""), "`type`, `status` or `reason` is needed"),
        (RULE.replace("name: first", "name: []"), "rules.0.when.name"),
        (RULE.replace("action: apply", "action: explode"), "rules.0.action"),
        (f"{HOOK}{RULE}".replace("}]\n", "}]\n", 1) + "plugin: []\n", "plugin"),
        (HOOK + HOOK, "webhooks"),
        (HOOK.replace("[{", f"[{{name: ops, url: 'http://x', secret: '{SECRET}'}}, {{"), "`ops` appears twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_told_without_its_secrets(text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_server(f"projects: []\n{text}")
    assert message in str(refused.value) and "hush" not in str(refused.value) and SECRET not in str(refused.value)
