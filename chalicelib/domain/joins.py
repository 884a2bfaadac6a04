"""A join: a command with which one machine joins an SSH fleet by itself."""

from __future__ import annotations

from enum import StrEnum

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun

EXPIRED_TTL = 7 * DAY  # how long an expired join is kept, so that people can see how it ended


class JoinStatus(StrEnum):
    unused = "unused"
    used = "used"
    revoked = "revoked"
    expired = "expired"


class Join(Noun):
    id: str
    project_id: str
    fleet_id: str
    secret_hash: str  # of the command's token, which is shown once
    user_id: str  # who requested it
    user_name: str
    created_at: Micros
    expires_at: Micros
    revoked_at: Micros | None = None
    used_at: Micros | None = None
    instance_id: str = ""  # the instance that used it
    instance_name: str = ""
    try_hash: str = ""  # of the joining machine's random number, with which only that machine may repeat its call

    def status(self, now: Micros) -> JoinStatus:
        if self.used_at is not None:
            return JoinStatus.used
        if self.revoked_at is not None:
            return JoinStatus.revoked
        return JoinStatus.expired if now >= self.expires_at else JoinStatus.unused

    def place(self) -> keys.Place:
        listed = keys.by_time(keys.joins_of(self.fleet_id), self.created_at, self.id)
        return keys.Place(keys.join(self.id), listed, expires_at=(self.expires_at + EXPIRED_TTL) // SECOND)
