"""A machine that its cloud takes back: its provider's description says so, or the machine itself has heard it.

The machine ends from then on, and its jobs are stopped as any are; they were interrupted. If there was a notice, the
machine isn't released before the jobs have stopped or its time is over.
"""

from __future__ import annotations

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.kernel.transitions import Draft

NOTICE: Micros = 2 * MINUTE  # where nobody says how much time there is


def interrupt(draft: Draft, instance: Instance, at: Micros | None) -> Instance:
    """`at`: when it goes; None: it has gone."""
    if instance.offer.instance.resources.spot:
        text = "the cloud reclaimed the spot machine"
    elif at is None:
        text = "the cloud no longer lists it"
    else:
        text = (
            f"its reservation {instance.offer.reservation} ends" if instance.offer.reservation else "the cloud ends it"
        )
    return draft.end_instance(instance.with_(taken_back_at=at), InstanceReason.error, text)
