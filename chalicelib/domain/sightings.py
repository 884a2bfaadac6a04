"""A sweep's first sighting of a resource without an owner, or of an instance that the provider doesn't list.

Nothing is done at the first sighting: a listing may lag, a copy of the store may be old, or a change may be under way.
The sighting is stored, so that a later sweep, in whichever process, can confirm it.
"""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun


class Sighting(Noun):
    account: str  # the account that was swept
    subject: str  # `resource/<kind>/<id>` or `instance/<id>/<epoch>`
    first_at: Micros  # after the listing that showed it
    acted_at: Micros | None = None  # when a later sweep confirmed it
    until: Micros  # after this it no longer counts

    def place(self) -> keys.Place:
        key = keys.sighting(self.account, derive(self.account, "sighting", self.subject))
        return keys.Place(key, expires_at=self.until // SECOND + 1)
