"""The order for a stream from a gateway to a replica, stored until the replica's agent gets it, because in AWS no
process lasts long enough. It lies beside the record of the agent's instance, which every sync reads anyway.
"""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun

TTL: Micros = 30 * SECOND  # the gateway itself waits for no stream longer


class StreamOrder(Noun):
    instance_id: str
    id: str  # of the stream
    order: str  # the order in the agent protocol, as JSON; sealed, because it contains a ticket
    at: Micros

    def place(self) -> keys.Place:
        end = (self.at + TTL) // SECOND + 1
        return keys.Place(keys.stream_order(self.instance_id, self.id), expires_at=end)
