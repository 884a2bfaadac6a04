"""The webhooks and rules of `server/config.yml`, each with a thread of its own, so that a slow receiver delays no
other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chalicelib.configuration.server_spec import RuleConfig, ServerConfig, WebhookConfig
from chalicelib.domain import keys
from chalicelib.domain.specs.automation import AutomationOrder, is_of_automation
from chalicelib.domain.state_changes import StateChange
from chalicelib.domain.subscriptions import Subscription
from chalicelib.engine.ports import Feed
from chalicelib.engine.subscriptions import EventFollower
from chalicelib.runtime.ticker import Ticker
from chalicelib.runtime.webhooks import Send, sender
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Delete
from chalicelib.usecases.context import Plane
from chalicelib.usecases.runs.rule_actions import carry_out

EVERY = 0.5  # seconds between two polls: each is one read of an index while nothing happens

Subscriber = WebhookConfig | RuleConfig


class Subscribers:
    def __init__(self, plane: Callable[[], Plane], feed: Feed, send: Send | None = None) -> None:
        self._plane, self._feed, self._send = plane, feed, send
        self._followed: dict[str, tuple[Subscriber, Ticker]] = {}

    def follow(self, config: ServerConfig) -> None:
        """Serve the webhooks and rules of this configuration. Unchanged ones continue undisturbed."""
        wanted: dict[str, Subscriber] = {f"webhook/{hook.name}": hook for hook in config.webhooks or ()}
        wanted |= {f"rule/{rule.name}": rule for rule in config.rules or ()}
        for name, (known, ticker) in list(self._followed.items()):
            if wanted.get(name) != known:
                ticker.stop()
                del self._followed[name]
        self._forget(set(wanted))
        for name, one in wanted.items():
            if name not in self._followed:
                follower = self.follower(name, one)
                follower.begin()
                ticker = Ticker(EVERY, follower.deliver_due, at_once=True)
                self._followed[name] = (one, ticker)
                ticker.start()

    def follower(self, name: str, one: Subscriber) -> EventFollower:
        plane = self._plane()
        if isinstance(one, WebhookConfig):
            concerns, deliver = one.events.has, sender(one, plane.clock, self._send)
        else:
            concerns, deliver = partial(_concerns, one), partial(_order, plane, one)
        return EventFollower(name, plane.store, self._feed, plane.clock, concerns, deliver)

    def settled(self) -> int:
        """The position in the feed that all subscriptions have passed."""
        return min((one.cursor for one in self._subscriptions()), default=self._feed.feed_end())

    def stop(self) -> None:
        for _, ticker in self._followed.values():
            ticker.stop()

    def _forget(self, wanted: set[str]) -> None:
        unused = [one for one in self._subscriptions() if one.name not in wanted]
        if unused:
            self._plane().store.commit([Delete(nouns.key_of(one)) for one in unused])

    def _subscriptions(self) -> list[Subscription]:
        found = all_of(self._plane().store, "main", keys.SUBSCRIPTIONS)
        return [nouns.read(Subscription, record) for record in found]


def _concerns(rule: RuleConfig, change: StateChange) -> bool:
    return rule.when.has(change) and not is_of_automation(change)


def _order(plane: Plane, rule: RuleConfig, change: StateChange) -> None:
    order = AutomationOrder(
        rule=rule.name,
        event=change.id,
        project=rule.project,
        configuration=rule.configuration,
        action=rule.action,
    )
    carry_out(plane, order)
