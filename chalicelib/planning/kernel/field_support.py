"""Fields that aren't built: each is refused by name, with what to do instead. Nothing is accepted and ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from chalicelib.errors import Problem


@dataclass(frozen=True)
class NotBuilt:
    """Why a field is refused. `harmless` values are accepted, because they request what happens anyway."""

    why: str
    hint: str = ""
    harmless: tuple[Any, ...] = ()


def refused(spec: BaseModel, table: Mapping[str, NotBuilt]) -> Iterator[Problem]:
    """A problem for every field of the table that is set to a meaningful value."""
    for path, field in table.items():
        steps = path.split(".")
        if _is_set(spec, steps, field):
            text = f"`{steps[-1]}` isn't supported yet: {field.why}"
            yield Problem(text, path=path, hint=field.hint, code="unsupported")


def _is_set(spec: Any, steps: Sequence[str], field: NotBuilt) -> bool:
    """Is a meaningful value set at this path? Lists are walked element by element, a missing step ends the walk, and an
    unset field counts as its default."""
    if isinstance(spec, tuple | list):
        return any(_is_set(item, steps, field) for item in spec)
    name = steps[0]
    if not isinstance(spec, BaseModel) or name not in spec.model_fields_set:
        return False
    value = getattr(spec, name)
    if len(steps) > 1:
        return _is_set(value, steps[1:], field)
    if value is None or value in ((), [], {}) or value in field.harmless:
        return False
    return bool(value != type(spec).model_fields[name].get_default(call_default_factory=True))
