"""What a sweep saw for the first time: a resource without an owner, or an instance that the provider doesn't list.

Nothing is done at first sight: a listing may lag, a copy of the store may be old, somebody may be in the middle of
something. The sighting is stored, so that a later sweep, in whatever process, can agree.
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
    acted_at: Micros | None = None  # when a later sweep agreed
    until: Micros  # after this it no longer counts

    def place(self) -> keys.Place:
        key = keys.sighting(self.account, derive(self.account, "sighting", self.subject))
        return keys.Place(key, expires_at=self.until // SECOND + 1)
