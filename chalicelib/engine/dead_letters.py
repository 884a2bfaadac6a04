"""Reports events that Lambda gave up: a line in the log, and an event on each unit concerned.

The lost work isn't repeated here. A lost effect is repeated by its unit once `act_until` has passed, like one whose
process died; a lost hint names units that are due anyway. But an event that failed so often, or waited so long, points
to a bug, a provider's new behaviour or an account that is too small, so the unit's owner and the operator should both
learn of it.
"""

from __future__ import annotations

import json
import logging

from chalicelib.engine import postpone
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.log_context import unit_context
from chalicelib.engine.ports import Clock
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

DETAIL = "it failed too often or waited too long; it is repeated when it is due"


def report(store: Store, clock: Clock, message: str, kinds: Kinds = KINDS) -> int:
    """Report one event; returns 1. The message has it as `requestPayload`, along with the failure."""
    effect, units = _read(message)
    if not effect:
        log.error("an event was given up: %s", message[:2000])
    for unit in units:
        with unit_context(unit):
            log.error("%s of %s was given up: %s", effect, unit, message[:2000])
            row = kinds.units.get(unit.partition("/")[0])
            if row is not None:
                postpone.record_failure(store, row, unit, clock.now(), reason=effect, detail=DETAIL)
    return 1


def _read(message: str) -> tuple[str, list[str]]:
    """The name of the effect and its units; both empty for a hint, and for a message that can't be read."""
    try:
        content = json.loads(message)["requestPayload"]
    except (ValueError, TypeError, KeyError):
        return "", []
    effect = content.get("effect") if isinstance(content, dict) else None
    if not isinstance(effect, str):
        return "", []
    named = content.get("units") or [content.get("unit")]
    return effect, [unit for unit in named if isinstance(unit, str)]
