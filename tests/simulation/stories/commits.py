"""Every commit, of any noun: a status follows its table, and every change of one has an event."""

from __future__ import annotations

from chalicelib.domain.events import EventType
from chalicelib.planning.kernel.lint import reaches
from tests.simulation.stories import Story
from tests.simulation.watch import Commit
from tests.simulation.world import Invariant

FOLLOWS_ITS_TABLE = Invariant("follows its table", "a status changes along the edges of its machine; an end is final")
EVENTS_MATCH = Invariant(
    "told", "a change of status and the event that tells of it are written together, or neither is"
)


class Commits(Story):
    def committed(self, commit: Commit) -> None:
        machines = self.site.machines
        statuses = {event.targets[0].id: event.after for event in commit.events if event.type is EventType.status}
        for old, new in commit.nouns:
            if type(new) not in machines:
                continue  # it has no status
            before = new.status if old is None else old.status
            if before != new.status:
                machine = machines[type(new)]
                if before in machine.terminal or new.status not in reaches(machine, before):
                    raise FOLLOWS_ITS_TABLE.broken(f"{machine.noun} {new.name} went from {before} to {new.status}")
                if statuses.get(new.id) != new.status:
                    raise EVENTS_MATCH.broken(f"{new.name} became {new.status}, and {statuses.get(new.id)} is told")
        for event in commit.events:
            if event.type is EventType.status and event.targets[0].id not in {new.id for _, new in commit.nouns}:
                raise EVENTS_MATCH.broken(f"{event.targets[0].name} is told to be {event.after}, and isn't written")
