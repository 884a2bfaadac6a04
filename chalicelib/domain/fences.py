"""Which of two stores decides, while a control plane moves from one to the other, and afterwards.

A store without a fence decides: it has never moved. A fence that isn't active stops everything: nothing is committed,
so nothing is bought, started or ended. Each change of a fence is a commit under its version, and their order is such
that at most one of two stores decides at any moment:

1. the target's fence says `receiving`, before anything is copied into it
2. the source's says `moved`, and nobody commits there any more
3. the target's says `active`, once it has everything

To give up, the target's becomes `void` first, and then the source's `active` again.
"""

from __future__ import annotations

from enum import StrEnum

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class FenceState(StrEnum):
    active = "active"  # this store decides
    receiving = "receiving"  # it is the target of a migration that isn't finished
    moved = "moved"  # it was the source of a migration, and another store decides
    void = "void"  # it was the target of a migration that was given up


class Fence(Noun):
    state: FenceState
    migration: str  # the last one that it took part in
    source: str = ""  # receiving: where the control plane comes from
    ready: bool = False  # receiving, moved: nothing that began here before is under way any more
    agents_url: str = ""  # where agents find the control plane, once it has moved
    people_url: str = ""  # the same for people
    since: Micros = 0
    arrived: Micros = 0  # when a migration to here ended: what happened before was announced elsewhere

    @property
    def decides(self) -> bool:
        return self.state is FenceState.active

    @property
    def problem(self) -> str:
        """Why nothing is decided here."""
        if self.state is FenceState.moved:
            return f"This control plane has moved to {self.people_url}."
        if self.state is FenceState.receiving:
            return "A control plane is moving here, and hasn't arrived yet."
        return "Nothing is decided here: a migration to this place was given up."

    @property
    def hint(self) -> str:
        """What helps."""
        if self.state is FenceState.moved:
            return f"Call it there: dstack project add --name PROJECT --url {self.people_url} --token TOKEN."
        return "Run `dstack server migrate` again, which finishes the migration, or begins a new one."

    def place(self) -> keys.Place:
        return keys.Place(keys.FENCE)
