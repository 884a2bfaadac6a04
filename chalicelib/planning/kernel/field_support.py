"""Fields that are built, and fields that aren't: the latter are refused by name, with what to do instead. Nothing is
accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from chalicelib.errors import Problem


@dataclass(frozen=True)
class Supported:
    """It has an effect; `proof` is the test that shows it."""

    proof: str


@dataclass(frozen=True)
class NotBuilt:
    """It isn't built. `harmless` values ask for what happens anyway."""

    why: str
    hint: str = ""
    harmless: tuple[Any, ...] = ()


Support = Supported | NotBuilt
NotBuiltRow = tuple[tuple[str, ...], NotBuilt]  # the steps of a path, and why its field is refused


def not_built(table: dict[str, Support], prefix: str) -> tuple[NotBuiltRow, ...]:
    found = ((path.removeprefix(prefix), verdict) for path, verdict in table.items() if path.startswith(prefix))
    return tuple((tuple(path.split(".")), verdict) for path, verdict in found if isinstance(verdict, NotBuilt))


def refused(spec: BaseModel, rows: Iterable[NotBuiltRow]) -> Iterator[Problem]:
    for steps, verdict in rows:
        if _meant(spec, steps, verdict):
            text = f"`{steps[-1]}` isn't supported yet: {verdict.why}"
            yield Problem(text, path=".".join(steps), hint=verdict.hint, code="unsupported")


def _meant(spec: Any, steps: Sequence[str], verdict: NotBuilt) -> bool:
    """Is a meaningful value set at this path? Lists are walked element by element, a missing step ends the walk, and an
    unset field counts as its default."""
    if isinstance(spec, tuple | list):
        return any(_meant(item, steps, verdict) for item in spec)
    name = steps[0]
    if not isinstance(spec, BaseModel) or name not in spec.model_fields_set:
        return False
    value = getattr(spec, name)
    if len(steps) > 1:
        return _meant(value, steps[1:], verdict)
    if value is None or value in ((), [], {}) or value in verdict.harmless:
        return False
    return bool(value != type(spec).model_fields[name].get_default(call_default_factory=True))
