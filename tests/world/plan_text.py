"""A plan in words: what it writes, tells, orders and wakes, with names for ids and times counted from now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from chalicelib.domain.events import Event
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.planning.kernel.plan import Effect, Plan, Step
from tests.world.nouns import PROJECT
from tests.world.time import NOW

_OF_ALL = ("unit", "backend", "act_until", "project_id")  # fields that every effect has
_ALWAYS = ("version", "last_processed_at", "due_at")  # what an outline says of no noun
LONG = 300  # a text this long is shown by its beginning


def plan_text(plan: Plan, before: Iterable[Noun], now: int = NOW) -> str:
    """All of it, a line each. `before`: the nouns as they were read; of those only what changes is shown."""
    writer = _Writer({(type(noun), getattr(noun, "id", "")): noun for noun in before}, now)
    lines = [line for step in plan.steps for line in ("step", *writer.step(step))]
    lines += [f"note {note.subject}: {note.text} ({note.hint})" for note in plan.notes]
    if plan.next_wake is not None:
        lines.append(f"next {writer.value(plan.next_wake)}")
    return writer.named("\n".join(lines) or "nothing")


def outline(plan: Plan, before: Iterable[Noun], now: int = NOW) -> str:
    """What it comes to, on a line: each change of a status and why, else which fields change; what is ordered; when to
    look again."""
    known = {(type(noun), getattr(noun, "id", "")): noun for noun in before}
    parts = []
    for step in plan.steps:
        changes = (_change(known.get((type(noun), getattr(noun, "id", ""))), noun) for noun in step.saves)
        parts += [*filter(None, changes), *(type(effect).__name__ for effect in step.effects)]
    if plan.next_wake is not None:
        parts.append("again in " + f"{(plan.next_wake - now) / SECOND:.6f}".rstrip("0").rstrip(".") + " s")
    return "; ".join(parts) or "nothing"


def _change(old: Noun | None, noun: Noun) -> str:
    name = getattr(noun, "name", "") or type(noun).__name__.lower()
    status, reason = getattr(noun, "status", None), getattr(noun, "reason", None)
    if old is None:
        return f"new {type(noun).__name__.lower()} {name}" + (f" {status}" if status else "")
    was = getattr(old, "status", None)
    if status != was:
        return f"{name} {was} → {status}" + (f" ({reason})" if reason else "")
    before, after = _fields(old), _fields(noun)
    fields = [field for field in after if after[field] != before[field] and field not in _ALWAYS]
    return f"{name}: {', '.join(fields)}" if fields else ""


class _Writer:
    def __init__(self, before: dict[tuple[type, str], Noun], now: int) -> None:
        self._before, self._now = before, now
        self._names = {PROJECT: "project"} | {key: _name(noun) for (_, key), noun in before.items() if key}
        self._names |= {noun.run_id: noun.run_name for noun in before.values() if isinstance(noun, Job)}

    def named(self, text: str) -> str:
        for key, name in self._names.items():
            text = text.replace(key, name)
        return text

    def step(self, step: Step) -> list[str]:
        lines = [f"  save {self._saved(noun)}" for noun in step.saves]
        lines += [f"  tell {self._event(event)}" for event in step.events]
        lines += [f"  act {self._effect(effect)}" for effect in step.effects]
        return lines + [f"  wake {unit}" for unit in step.wake]

    def _saved(self, noun: Noun) -> str:
        key = getattr(noun, "id", "")
        old = self._before.get((type(noun), key))
        if key:
            self._names[key] = _name(noun)
        known = {} if old is None else _fields(old)
        default = type(noun).model_fields
        changed = [
            f"{field}={self.value(value)}"
            for field, value in _fields(noun).items()
            if (value != known[field] if old is not None else value != default[field].default)
            and field not in ("id", "version")
        ]
        return " ".join([type(noun).__name__, _name(noun), *([] if old else ["(new)"]), *changed])

    def _event(self, event: Event) -> str:
        whose = "run" * bool(event.run_id) + " fleet" * bool(event.fleet_id)
        names = ",".join(target.name for target in event.targets)
        kept = ("before", "after", "reason", "detail", "fields", "number", "trade", "actor_name")
        plan_text = [f"{name}={self.value(getattr(event, name))}" for name in kept if getattr(event, name)]
        return " ".join([str(event.type), names, f"[{whose.strip()}]", *plan_text])

    def _effect(self, effect: Effect) -> str:
        own = [each.name for each in fields(effect) if each.name not in _OF_ALL and getattr(effect, each.name)]
        more = "".join(f" {name}={self.value(getattr(effect, name))}" for name in own)
        return f"{type(effect).__name__} {effect.unit} at {effect.backend} until {self.value(effect.act_until)}{more}"

    def value(self, value: Any) -> str:
        if isinstance(value, int) and abs(value - NOW) < 30 * DAY:
            return f"{(value - self._now) / SECOND:+.6f}".rstrip("0").rstrip(".") + "s"
        if isinstance(value, BaseModel):
            inner = (f"{name}={self.value(each)}" for name, each in _fields(value).items() if _is_set(each))
            return f"({', '.join(inner)})"
        if isinstance(value, tuple):
            return f"[{', '.join(map(self.value, value))}]"
        text = str(value) if value != "" else "''"
        return text if len(text) <= LONG else f"{text[:20]}… ({len(text)} characters)"


def _name(noun: Noun) -> str:
    return str(getattr(noun, "name", "") or getattr(noun, "id", ""))


def _is_set(value: Any) -> bool:
    return any(_fields(value).values()) if isinstance(value, BaseModel) else bool(value)


def _fields(value: BaseModel) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).model_fields}
