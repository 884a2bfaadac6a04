"""A stream that a gateway wants to a replica, until the replica's agent hears of it: where no process lasts that could
keep it. It lies beside the record of the agent's instance, which every sync reads anyway.
"""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun

TTL: Micros = 30 * SECOND  # the gateway itself waits for no stream longer


class StreamOrder(Noun):
    instance_id: str
    id: str  # of the stream
    order: str  # what the agent is told, as JSON: sealed, for its ticket
    at: Micros

    def place(self) -> keys.Place:
        end = (self.at + TTL) // SECOND + 1
        return keys.Place(keys.stream_order(self.instance_id, self.id), expires_at=end)
