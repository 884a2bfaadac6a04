"""Configurations that rules apply, stop or delete, and the record of what a rule did about an event.

A stored configuration is applied in its author's name, with the rights that the author has at that time. What a rule
does about an event is recorded in the same commit, under the rule and the event, so an event that arrives twice has one
effect.

A rule may cause the very events that it acts on, directly or through other rules, and an event doesn't show its cause.
So a rule may act only a limited number of times a day; beyond that it has no effect and writes no event, which ends any
loop.
"""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.spending import DailyLimit

RECORD_TTL = 30 * DAY  # no bus and no webhook repeats an event after a month
MOST_A_DAY = 100  # actions of a rule


class Automation(Noun):
    """A stored configuration."""

    kind: ClassVar[str] = "automation"

    id: str
    project_id: str
    name: str  # of the configuration and of what it describes
    type: str  # task, dev-environment, service, fleet, volume
    sealed: str  # the spec as JSON: it may hold keys and passwords
    user_id: str  # its author, in whose name it is applied
    user_name: str
    limit: DailyLimit | None = None  # of the access token with which it was stored
    stored_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.automation(self.project_id, self.name))


class Automated(Noun):
    """What a rule did about an event."""

    project_id: str
    rule: str
    event_id: str
    at: Micros
    refused: str = ""  # why nothing was done

    def place(self) -> keys.Place:
        key = keys.automated(self.project_id, self.rule, self.event_id)
        return keys.Place(key, expires_at=(self.at + RECORD_TTL) // SECOND)


class RuleCount(Noun):
    """How often a rule has acted, or been refused, since its day began."""

    project_id: str
    rule: str
    since: Micros
    orders: int = 0

    def place(self) -> keys.Place:
        return keys.Place(keys.rule_count(self.project_id, self.rule), expires_at=(self.since + RECORD_TTL) // SECOND)

    def next(self, now: Micros) -> RuleCount:
        if now - self.since >= DAY:
            return self.with_(since=now, orders=1)
        return self.with_(orders=self.orders + 1)
