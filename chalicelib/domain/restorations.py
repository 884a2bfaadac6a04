"""That this server was restored from a backup, and what it has met since.

A restored record is older than reality. Machines were bought that it doesn't know, jobs ended that it takes for
running. So until an operator says that it goes on, or for an hour, the server only looks: it ends nothing.
"""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import HOUR, Micros
from chalicelib.domain.noun import Noun, Value

LOOKS: Micros = HOUR  # for how long a restored server ends nothing by itself
MOST_MET = 500  # findings that are kept, the first ones


class Met(Value):
    """Something that isn't as the records say."""

    # machine, disk, group: at a provider, and unknown; missing: recorded, and not there; agent, task, job: as an agent
    # reports; account: a provider that couldn't be asked
    kind: str
    id: str
    says: str  # a sentence


class Restoration(Noun):
    as_of: Micros  # the moment of the backup
    at: Micros  # when it was restored
    looks_until: Micros
    went_on_at: Micros | None = None  # by an operator's word
    met: tuple[Met, ...] = ()
    whole: bool = True  # False: the records are written one after another, and some are still to come

    def place(self) -> keys.Place:
        return keys.Place(keys.RESTORATION)

    def looking(self, now: Micros) -> bool:
        """Does the server only look, at this time?"""
        return not self.whole or (self.went_on_at is None and now < self.looks_until)
