"""A gang: the places of one submission of a task on several nodes. It gets all of them, or none.

Places are claimed in chunks, and none counts until the last commit seals the gang. A gang that isn't sealed in time is
undone, as is one whose places a run ahead of it in the queue needs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun


class GangStatus(StrEnum):
    gathering = "gathering"  # claims places; none counts yet
    sealed = "sealed"  # has all its places; waits until every node has an address
    starting = "starting"  # the first nodes in `startup_order` may start
    released = "released"  # all nodes may start
    undone = "undone"  # its places are being freed, as long as any are left in `places`


class Gang(Noun):
    kind: ClassVar[str] = "gang"
    in_run: ClassVar[str] = "run_id"

    id: str
    run_id: str
    run_name: str
    project_id: str
    replica_num: int = 0
    submission_num: int = 0
    nodes: int
    status: GangStatus = GangStatus.gathering
    message: str = ""
    places: tuple[str, ...] = ()  # instances by rank, from the first
    addresses: tuple[str, ...] = ()  # of all nodes by rank, once they are known
    gpus: tuple[int, ...] = ()  # of all nodes by rank, once they are known
    began_at: Micros
    last_processed_at: Micros
    attempt: int = 0  # how often it was undone and started again
    token: str = ""  # of the callback that an execution waits for
    awaits: str = ""  # the stage of the start whose end the callback announces
    until: Micros | None = None  # gathering, sealed: when it is undone
    due_at: Micros | None = None

    @property
    def name(self) -> str:
        return f"{self.run_name}-{self.replica_num}"

    @property
    def holds(self) -> bool:
        """Does it have places that haven't been assigned to their jobs yet?"""
        return bool(self.places) and self.status is not GangStatus.released

    @property
    def unit(self) -> str:
        return f"run/{self.run_id}"

    def place(self) -> keys.Place:
        key = keys.gang(self.run_id, self.replica_num, self.submission_num)
        return keys.Place(key, due=keys.due(self.unit, self.due_at))

    def parent(self) -> tuple[str, str, str]:
        return "run", self.run_id, self.run_name


def gang_id(lead: Job) -> str:
    return derive(lead.run_id, "gang", lead.replica_num, lead.submission_num)


def gang_lead(gang: Gang) -> str:
    """The id of its first node's job."""
    return derive(gang.run_id, "job", gang.replica_num, 0, gang.submission_num)
