"""A machine that its cloud takes back: its provider's description says so, or the machine itself has heard it.

The machine ends from then on, and its jobs are stopped as any are; they were interrupted. If there was a notice, the
machine isn't released before the jobs have stopped or its time is over.
"""

from __future__ import annotations

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.transitions import Draft

NOTICE: Micros = 2 * MINUTE  # where nobody says how much time there is


def take_back(draft: Draft, instance: Instance, at: Micros | None) -> Instance:
    """`at`: when it goes; None: it has gone."""
    spot = instance.offer.instance.resources.spot
    text = "the cloud reclaimed the spot machine" if spot else "the cloud no longer lists it"
    return draft.end_instance(instance.with_(taken_back_at=at), InstanceReason.error, text)
