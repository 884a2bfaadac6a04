"""Secret parts of a spec: they are marked at the field, and found by walking the types, never by name.

A marked text is stored sealed and never shown; the store does that with the tree from `secrets_of`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from chalicelib.domain.specs.reading import JsonSchema, Spec

HIDDEN = "(hidden)"  # shown for a secret that can't be left out
EACH = "*"  # in a tree: every entry of a list


class _Mark:
    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        return {**handler(core), "writeOnly": True}


SECRET = _Mark()
Secret = Annotated[str, Field(min_length=1), SECRET]


class Confidential(Spec):
    """A spec with secrets, which shows none of its fields when printed."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return ()


@dataclass(frozen=True)
class Leaf:
    """A secret, and what is shown in its place."""

    shown: str | None


Tree = Mapping[str, Any]  # field → its Tree or, if the field is secret, a Leaf


@cache
def secrets_of(model: type[BaseModel]) -> Tree:
    """The tree of a model's secrets, at any depth."""
    found = {name: _within(field.annotation, field.metadata) for name, field in model.model_fields.items()}
    return {name: place for name, place in found.items() if place}


def _within(annotation: Any, metadata: Iterable[Any] = ()) -> Tree | Leaf | None:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _within(parts[0], parts[1:])
    if SECRET in metadata:
        return Leaf(HIDDEN)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return secrets_of(annotation)
    if origin in (Union, types.UnionType):
        found = [place for part in parts if (place := _within(part))]
        leaf = next((place for place in found if isinstance(place, Leaf)), None)
        if leaf is not None:
            return Leaf(None) if type(None) in parts else leaf
        return _merged([place for place in found if not isinstance(place, Leaf)])
    inner = next((place for part in parts if (place := _within(part))), None)
    return {EACH: inner} if inner else None


def _merged(trees: list[Tree]) -> Tree:
    """The trees of all arms of a union as one: a field that is secret in any arm counts as secret."""
    whole: dict[str, Any] = {}
    for tree in trees:
        for name, place in tree.items():
            known = whole.get(name)
            whole[name] = _merged([known, place]) if known and not isinstance(place, Leaf) else place
    return whole


def replaced(place: Tree | Leaf, raw: Any, change: Callable[[str, Leaf], str | None]) -> Any:
    """Plain data with every secret in it changed. Data that doesn't match the models stays as it is."""
    if isinstance(place, Leaf):
        return change(str(raw), place) if isinstance(raw, str | int | float) and not isinstance(raw, bool) else raw
    if isinstance(raw, dict):
        return {name: replaced(place[name], value, change) if name in place else value for name, value in raw.items()}
    if isinstance(raw, list) and EACH in place:
        return [replaced(place[EACH], value, change) for value in raw]
    return raw


def names_of(place: Tree) -> frozenset[str]:
    """The names of the fields that are secret."""
    below = [names_of(inner) for inner in place.values() if not isinstance(inner, Leaf)]
    return frozenset(name for name, inner in place.items() if isinstance(inner, Leaf)).union(*below)


def filled(raw: Any, stored: Any) -> Any:
    """What was written, with hidden values taken from the stored one."""
    if isinstance(raw, Mapping) and isinstance(stored, Mapping):
        return {name: filled(value, stored.get(name)) for name, value in raw.items()}
    if isinstance(raw, list) and isinstance(stored, list):
        return [_meant(value, stored) for value in raw]
    return stored if raw == HIDDEN and isinstance(stored, str) else raw


def _meant(raw: Any, stored: Sequence[Any]) -> Any:
    """The stored item whose values this one hides; the item itself if that is ambiguous."""
    found = [known for known in stored if filled(raw, known) == known]
    return found[0] if len(found) == 1 else raw
