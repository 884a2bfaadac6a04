"""A subscription of a webhook or a rule to the log of events, and its position."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class Subscription(Noun):
    name: str  # webhook/ops, rule/again
    cursor: int  # the place in the feed up to which everything is settled
    within: int = 0  # how many events of the next record are settled
    failures: int = 0  # of the next event, in a row
    retry_at: Micros | None = None
    error: str = ""  # of the last attempt, if it failed
    dead: bool = False  # after too many failures, until somebody changes something

    def place(self) -> keys.Place:
        return keys.Place(keys.subscription(self.name))
