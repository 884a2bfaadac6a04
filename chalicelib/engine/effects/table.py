"""Which family executes which effect, and how an effect is serialised for a queue.

A family is a class constructed from an `EffectContext`; its `effects` name the method that executes each kind. To add a
family, add a module here and an entry in FAMILIES.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Protocol

from chalicelib.engine.effects.attachments import Attachments
from chalicelib.engine.effects.certificates import Certificates
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.executions import ExecutionMessages
from chalicelib.engine.effects.markets import MarketEffects
from chalicelib.engine.effects.placement_groups import GroupEffects
from chalicelib.engine.effects.purchases import Purchases
from chalicelib.engine.effects.volumes import VolumeEffects
from chalicelib.engine.effects.workflows import StepEffects
from chalicelib.errors import Bug
from chalicelib.planning.kernel.plan import Effect


class Family(Protocol):
    effects: ClassVar[Mapping[type[Effect], str]]

    def __init__(self, here: EffectContext) -> None: ...


FAMILIES: tuple[type[Family], ...] = (
    Purchases,
    GroupEffects,
    StepEffects,
    ExecutionMessages,
    VolumeEffects,
    Attachments,
    Certificates,
    MarketEffects,
)

_KINDS: Mapping[str, type[Effect]] = {kind.__name__: kind for family in FAMILIES for kind in family.effects}


def to_message(effect: Effect) -> dict[str, Any]:
    """An effect as JSON for a queue, which can route it by `backend`."""
    return {"effect": type(effect).__name__, **asdict(effect)}


def from_message(message: Mapping[str, Any]) -> Effect:
    kind = _KINDS.get(str(message.get("effect")))
    if kind is None:
        raise Bug(f"no effect is called {message.get('effect')!r}")
    given: dict[str, Any] = {name: value for name, value in message.items() if name != "effect"}
    for name, value in given.items():
        given[name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)
