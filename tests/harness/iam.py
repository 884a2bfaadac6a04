"""Whether policies of IAM allow a call, as far as the policies of this repository go.

`Call` is what is asked: an action, the ARN of what it is done to (`*` if AWS knows no narrower one), and the keys that
conditions look at. What no statement allows is denied, and a statement that denies wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.action} {self.resource}"


class Ground(NamedTuple):
    """Why a call is allowed or denied: a statement, and what of it fits the call."""

    statement: str  # its Sid
    effect: str
    action: str
    resource: str


def allowed(documents: Iterable[Document], call: Call) -> bool:
    return {each.effect for each in grounds(documents, call)} == {"Allow"}


def grounds(documents: Iterable[Document], call: Call) -> Iterator[Ground]:
    for each in statements(documents):
        actions = [one for one in each["Action"] if like(one.lower(), call.action.lower())]
        if actions and _holds(each.get("Condition", {}), call):
            things = [one for one in each["Resource"] if like(one, call.resource)]
            yield from (Ground(each.get("Sid", ""), each["Effect"], a, thing) for a in actions for thing in things)


def statements(documents: Iterable[Document]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        yield from document["Statement"]


def _holds(condition: Mapping[str, Any], call: Call) -> bool:
    return all(
        _OPERATORS[operator](call.context.get(key), _listed(wanted))
        for operator, keys in condition.items()
        for key, wanted in keys.items()
    )


def like(pattern: str, text: str) -> bool:
    """`*` and `?` are wildcards, and nothing else is."""
    return pattern == text or (("*" in pattern or "?" in pattern) and fnmatchcase(text, pattern.replace("[", "[[]")))


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _like(given: str | None, wanted: list[str]) -> bool:
    return given is not None and any(like(each, given) for each in wanted)


# A key that isn't there fails a condition, but for those with a `Not`. Any other operator is a KeyError: write it here.
_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "StringEquals": lambda given, wanted: given in wanted,
    "StringNotEquals": lambda given, wanted: given not in wanted,
    "StringLike": _like,
    "ArnLike": _like,
    "ArnEquals": _like,
    "Bool": lambda given, wanted: given in wanted,
}
