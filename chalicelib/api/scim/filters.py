"""Filters: `userName eq "ana@example.com"`, and several of these joined by `and`. Directories ask nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from chalicelib.errors import WrongScim

_CONDITION = re.compile(
    r"\s*(?P<attribute>[A-Za-z][\w:.$-]{0,200}(?:\[[^\]]{0,200}\][\w.]{0,60})?)"
    r'\s+eq\s+(?P<value>"(?:[^"\\]|\\.){0,1000}"|true|false)\s*(?P<joined>and\s|\Z)',
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Comparison:
    attribute: str  # in lower case, without its schema
    value: str | bool

    def holds(self, text: str) -> bool:
        """Is it this text? `externalId` and `id` are compared exactly, all others in any case."""
        wanted = str(self.value)
        return text == wanted if self.attribute in ("id", "externalid") else text.lower() == wanted.lower()


def parse(written: str, known: Iterable[str]) -> list[Comparison]:
    """The conditions, which must all hold. `known`: the attributes that can be asked for, as SCIM spells them. Raises
    WrongScim."""
    found: list[Comparison] = []
    at, attributes = 0, {name.lower(): name for name in known}
    joined = "and"
    while joined:
        condition = _CONDITION.match(written, at)
        if condition is None:
            raise _wrong(f"The filter can't be read from {written[at : at + 80]!r} on.", attributes)
        attribute = plain(condition["attribute"]).lower()
        if attribute not in attributes:
            raise _wrong(f"Nothing can be filtered by {condition['attribute'][:80]!r}.", attributes)
        found.append(Comparison(attribute, _value(condition["value"])))
        at, joined = condition.end(), condition["joined"]
    return found


def plain(attribute: str) -> str:
    """The name of an attribute without the URN of the schema that it is of."""
    if not attribute.lower().startswith("urn:"):
        return attribute
    head, bracket, rest = attribute.partition("[")
    return head.rpartition(":")[2] + bracket + rest


def chosen(element: Any, written: str) -> bool:
    """Is this element of a list the one in `members[value eq "…"]`? `written`: what is between the brackets."""
    condition = _CONDITION.fullmatch(written)
    if condition is None or condition["joined"]:
        raise WrongScim(
            f"The filter [{written[:80]}] can't be read.", "invalidPath", hint='For example: members[value eq "…"]'
        )
    if not isinstance(element, Mapping):
        return False
    found = next((each for name, each in element.items() if name.lower() == condition["attribute"].lower()), None)
    return str(found).lower() == str(_value(condition["value"])).lower()


def _value(written: str) -> str | bool:
    if not written.startswith('"'):
        return written.lower() == "true"
    try:
        return str(orjson.loads(written))
    except orjson.JSONDecodeError:
        raise WrongScim(f"{written[:80]} isn't a text as in JSON.", "invalidFilter") from None


def _wrong(message: str, attributes: Mapping[str, str]) -> WrongScim:
    known = ", ".join(attributes.values())
    return WrongScim(message, "invalidFilter", hint=f'Write for example: userName eq "ana". Attributes here: {known}.')
