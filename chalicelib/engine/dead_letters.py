"""What becomes of an event that Lambda gave up: a line in the log, and an event on each unit that it was about.

Nothing is done in its place. An effect that was lost with it is repeated by its unit once `act_until` has
passed, as is one whose process died; a lost hint names units that are due anyway. But that something failed so often,
or waited so long, is a defect of ours, a provider's new behaviour or an account that is too small, and the unit's owner
and the operator should both learn of it.
"""

from __future__ import annotations

import json
import logging

from chalicelib.engine import postpone
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.log_context import about
from chalicelib.engine.ports import Clock
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

SAID = "it failed too often or waited too long; it is repeated when it is due"


def tell(store: Store, clock: Clock, message: str, kinds: Kinds = KINDS) -> int:
    """Returns 1, for one event told of. The message has it as `requestPayload`, beside how it failed."""
    effect, units = _read(message)
    if not effect:
        log.error("an event was given up: %s", message[:2000])
    for unit in units:
        with about(unit):
            log.error("%s of %s was given up: %s", effect, unit, message[:2000])
            row = kinds.units.get(unit.partition("/")[0])
            if row is not None:
                postpone.tell_failed(store, row, unit, clock.now(), reason=effect, detail=SAID)
    return 1


def _read(message: str) -> tuple[str, list[str]]:
    """The name of the effect and the units it is about; none of a hint, nor of what can't be read."""
    try:
        content = json.loads(message)["requestPayload"]
    except (ValueError, TypeError, KeyError):
        return "", []
    effect = content.get("effect") if isinstance(content, dict) else None
    if not isinstance(effect, str):
        return "", []
    named = content.get("units") or [content.get("unit")]
    return effect, [unit for unit in named if isinstance(unit, str)]
