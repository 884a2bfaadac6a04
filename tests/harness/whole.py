"""Documents of the contract from those of their keys that a test is about: the others are null, empty or 0."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from typing_extensions import NotRequired, Required, is_typeddict

_ABSENT: Any = object()
_PLAIN: dict[Any, Callable[[], Any]] = {str: str, int: int, float: float, bool: bool, list: list, dict: dict}


def whole(kind: Any, given: Any = _ABSENT) -> Any:
    """`given` with every key that its type requires, in all of its parts. What isn't of the type stays as it is."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return whole(inside[0], given)
    if origin in (Union, types.UnionType):
        return _of_union(inside, given)
    if is_typeddict(kind) and (given is _ABSENT or isinstance(given, dict)):
        hints, known = _hints(kind), {} if given is _ABSENT else given
        found = {key: whole(hints[key], value) if key in hints else value for key, value in known.items()}
        return found | {key: whole(hints[key]) for key in hints if key in required(kind) and key not in known}
    if origin is list and isinstance(given, list):
        return [whole(inside[0], each) for each in given]
    if given is not _ABSENT:
        return given
    if origin is Literal:
        return inside[0]
    return _PLAIN.get(origin or kind, lambda: None)()


@cache
def required(kind: Any) -> frozenset[str]:
    """The keys that a document of this type must have. The type's own list has too many, if
    annotations are postponed."""
    marked = {key: get_origin(hint) for key, hint in get_type_hints(kind, include_extras=True).items()}
    return frozenset(
        key
        for key, mark in marked.items()
        if mark is Required or (mark is not NotRequired and key in kind.__required_keys__)
    )


def _of_union(members: tuple[Any, ...], given: Any) -> Any:
    if given is _ABSENT:
        return None if type(None) in members else whole(members[0])
    if isinstance(given, dict) and (typed := [one for one in members if is_typeddict(one)]):
        return whole(max(typed, key=lambda one: len(given.keys() & _hints(one).keys())), given)
    if isinstance(given, list) and (lists := [one for one in members if get_origin(one) is list]):
        return whole(lists[0], given)
    return given


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
