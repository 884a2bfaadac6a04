"""Configurations that rules apply, stop or delete, and what a rule has made of an event.

A stored configuration is its author's word for what may happen in their name later: it is applied with the rights that
they have then. What a rule does about an event is recorded in the commit that does it, under the rule and the event, so
an event that comes twice has one effect.

A rule may cause what it acts on, by itself or through others, and nobody can tell from a document what caused it. So a
rule has only so many orders a day; what comes after that has no effect and no event, and any loop comes to rest.
"""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun

RECORD_TTL = 30 * DAY  # no bus and no webhook brings an event again after a month
MOST_A_DAY = 100  # orders of a rule


class Automation(Noun):
    """A stored configuration."""

    kind: ClassVar[str] = "automation"

    id: str
    project_id: str
    name: str  # of the configuration and of what it describes
    type: str  # task, dev-environment, service, fleet, volume
    sealed: str  # the spec as JSON: it may hold keys and passwords
    user_id: str  # who stored it, and acts
    user_name: str
    stored_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.automation(self.project_id, self.name))


class Automated(Noun):
    """What a rule made of an event."""

    project_id: str
    rule: str
    event_id: str
    at: Micros
    refused: str = ""  # why nothing was done

    def place(self) -> keys.Place:
        key = keys.automated(self.project_id, self.rule, self.event_id)
        return keys.Place(key, expires_at=(self.at + RECORD_TTL) // SECOND)


class RuleCount(Noun):
    """How often a rule has been heeded, or refused, since its day began."""

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
