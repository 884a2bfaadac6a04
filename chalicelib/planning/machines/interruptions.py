"""Interruptions: a provider reclaims a machine, as its description or a notice to the machine says.

The machine is terminating from then on, and its jobs are stopped with an interruption as the reason. If there was a
notice, the machine isn't released before its jobs have stopped or its time is over.
"""

from __future__ import annotations

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.kernel.transitions import Draft

NOTICE: Micros = 2 * MINUTE  # the time that a machine has if nothing else is known


def interrupt(draft: Draft, instance: Instance, at: Micros | None, why: str = "") -> Instance:
    """Start terminating a reclaimed machine. `at`: when the provider takes it; None: it is gone already. `why`: what
    the provider says about that."""
    container = instance.offer.is_container
    if instance.offer.instance.resources.spot and not container:
        text = "the cloud reclaimed the spot machine"
    elif why:
        text = why
    elif at is None:
        text = "the cloud no longer lists it"
    else:
        text = (
            f"its reservation {instance.offer.reservation} ends" if instance.offer.reservation else "the cloud ends it"
        )
    if at is None and container:  # had it ended by itself, its provider would say so
        at = draft.now
    return draft.end_instance(instance.with_(taken_back_at=at), InstanceReason.error, text)
