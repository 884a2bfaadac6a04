"""A project's quota: the most GPUs, jobs and dollars a day for the project, and for each of its users.

The record is written with every placement of the project, so two passes that found the same room can't both use it: the
second one loses the commit and counts again. A project without a quota has no such record, and no such cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros, day_of
from chalicelib.domain.noun import Noun, Value

EACH_USER = ""  # the key of the limits for users who have none of their own
MOST_USERS = 500  # users with limits of their own in one project: the record is written with every placement

Measure = Literal["gpus", "jobs", "money"]


class Limits(Value):
    """None: no limit."""

    gpus: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    jobs: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    money: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None  # dollars a day

    @property
    def empty(self) -> bool:
        return self.gpus is None and self.jobs is None and self.money is None

    def with_defaults(self, other: Limits) -> Limits:
        """These limits, with the other's where none is set."""
        return Limits.unvalidated(
            gpus=other.gpus if self.gpus is None else self.gpus,
            jobs=other.jobs if self.jobs is None else self.jobs,
            money=other.money if self.money is None else self.money,
        )


NONE = Limits()


class Quota(Noun):
    kind: ClassVar[str] = "quota"

    id: str  # the project's
    project_name: str
    limits: Limits = NONE
    users: dict[str, Limits] = {}  # by user id
    spent: dict[str, float] = {}  # dollars by user id, for jobs that ended on the day of `counted_to`
    counted_to: Micros = 0  # up to when ended jobs are included in `spent`

    @property
    def empty(self) -> bool:
        return self.limits.empty and all(limits.empty for limits in self.users.values())

    @property
    def by_user(self) -> bool:
        return any(not limits.empty for limits in self.users.values())

    @property
    def by_money(self) -> bool:
        return any(limits.money is not None for limits in (self.limits, *self.users.values()))

    def of(self, user_id: str) -> Limits:
        """A user's own limits, completed by those for every user."""
        return self.users.get(user_id, NONE).with_defaults(self.users.get(EACH_USER, NONE))

    def on(self, now: Micros) -> tuple[Mapping[str, float], Micros]:
        """The cost of jobs that ended today, by user id, and up to when they are counted."""
        today = day_of(now)
        return (self.spent, self.counted_to) if self.counted_to >= today else ({}, today)

    def place(self) -> keys.Place:
        return keys.Place(keys.quota(self.id))
