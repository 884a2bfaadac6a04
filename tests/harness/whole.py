"""Documents of the contract from those of their keys that a test is about: the others are null, empty or 0."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from typing_extensions import NotRequired, Required, is_typeddict

_ABSENT: Any = object()
_PLAIN: dict[Any, Callable[[], Any]] = {str: str, int: int, float: float, bool: bool, list: list, dict: dict}
Filler = Callable[[Any], Any]


def whole(kind: Any, given: Any = _ABSENT) -> Any:
    """`given` with every key that its type requires, in all of its parts. What isn't of the type stays as it is."""
    return _filler(kind)(given)


def _filler(kind: Any) -> Filler:
    """What fills in documents of a type."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _filler(inside[0])
    if origin in (Union, types.UnionType):
        return _filler_of_union(inside)
    if is_typeddict(kind):
        return partial(_of_dict, kind)
    if origin is list:
        return partial(_of_list, _filler(inside[0]))
    if origin is Literal:
        return partial(_or, lambda: inside[0])
    return partial(_or, _PLAIN.get(origin or kind, lambda: None))


def _or(empty: Callable[[], Any], given: Any) -> Any:
    return empty() if given is _ABSENT else given


def _of_list(fill: Filler, given: Any) -> Any:
    return [fill(each) for each in given] if isinstance(given, list) else _or(list, given)


def _of_dict(kind: Any, given: Any) -> Any:
    if given is not _ABSENT and not isinstance(given, dict):
        return given
    fillers, known = _fillers(kind), {} if given is _ABSENT else given
    found = {key: fillers[key](value) if key in fillers else value for key, value in known.items()}
    return found | {key: fillers[key](_ABSENT) for key in fillers if key in required(kind) and key not in known}


def _filler_of_union(members: tuple[Any, ...]) -> Filler:
    fillers = [_filler(each) for each in members]
    dicts = [(each, fill) for each, fill in zip(members, fillers, strict=True) if is_typeddict(each)]
    lists = [fill for each, fill in zip(members, fillers, strict=True) if get_origin(each) is list]
    empty = (lambda: None) if type(None) in members else partial(fillers[0], _ABSENT)

    def fill(given: Any) -> Any:
        if isinstance(given, dict) and dicts:
            return max(dicts, key=lambda one: len(given.keys() & _fillers(one[0]).keys()))[1](given)
        return lists[0](given) if isinstance(given, list) and lists else _or(empty, given)

    return fill


@cache
def _fillers(kind: Any) -> dict[str, Filler]:
    """Found out once: some types have hundreds of parts."""
    return {key: _filler(hint) for key, hint in get_type_hints(kind).items()}


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
