"""SCIM's JSON read: what a directory says about a person or a group. Attributes that mean nothing here are accepted,
and not kept: directories send whatever their profiles have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.api.bodies import parse_json
from chalicelib.domain.directory import DirectoryGroup, Person
from chalicelib.errors import Invalid, TooLarge, WrongScim

LONGEST = 320  # characters of a text: as long as an e-mail address can be


def read(body: bytes) -> Mapping[str, Any]:
    """The JSON object of a request."""
    try:
        found = parse_json(body)
    except TooLarge:
        raise
    except Invalid as wrong:
        raise WrongScim(wrong.problems[0].message, "invalidSyntax") from None
    if not isinstance(found, dict):
        raise WrongScim("The body must be a JSON object.", "invalidSyntax")
    return found


def person_of(resource: Mapping[str, Any], *, active: bool = True) -> Person:
    """`active`: whether they are if the resource doesn't say: somebody who has left doesn't come back by omission."""
    name = _get(resource, "name")
    inner = name if isinstance(name, Mapping) else {}
    user_name = _text(resource, "userName")
    if not user_name:
        raise WrongScim("A user needs a `userName`.", "invalidValue")
    return Person(
        user_name=user_name,
        external_id=_text(resource, "externalId"),
        given_name=_text(inner, "givenName"),
        family_name=_text(inner, "familyName"),
        display_name=_text(resource, "displayName"),
        email=_email(_get(resource, "emails")),
        active=_flag(_get(resource, "active"), active),
    )


def group_of(resource: Mapping[str, Any], group: DirectoryGroup) -> DirectoryGroup:
    """The group with what the resource says."""
    name = _text(resource, "displayName")
    if not name:
        raise WrongScim("A group needs a `displayName`.", "invalidValue")
    listed = _get(resource, "members") or []
    if not isinstance(listed, list):
        raise WrongScim("`members` must be a list.", "invalidValue")
    ids = [_text(each, "value") if isinstance(each, Mapping) else "" for each in listed]
    if not all(ids):
        raise WrongScim("Each of `members` needs a `value`, the id of a user.", "invalidValue")
    return group.with_(name=name, external_id=_text(resource, "externalId"), members=tuple(dict.fromkeys(ids)))


def number(query: Mapping[str, str], name: str, usual: int) -> int:
    """A whole number of the query, which may be too large or too small."""
    written = query.get(name, "")
    if not written:
        return usual
    try:
        return int(written[:12])
    except ValueError:
        raise WrongScim(f"`{name}` is {written[:40]!r}; it must be a whole number.", "invalidValue") from None


def _get(resource: Mapping[str, Any], name: str) -> Any:
    if name in resource:
        return resource[name]
    return next((value for each, value in resource.items() if each.lower() == name.lower()), None)


def _text(resource: Mapping[str, Any], name: str) -> str:
    found = _get(resource, name)
    if found is None:
        return ""
    if not isinstance(found, str) or not found.isprintable() or len(found) > LONGEST:
        raise WrongScim(f"`{name}` must be a text of at most {LONGEST} characters that can be printed.", "invalidValue")
    return found.strip()


def _flag(value: Any, usual: bool) -> bool:
    if value is None:
        return usual
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):  # as Entra writes it
        return value.lower() == "true"
    raise WrongScim("`active` must be true or false.", "invalidValue")


def _email(value: Any) -> str:
    """The primary address, or else the first one."""
    if value is None:
        return ""
    listed = [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else None
    if listed is None:
        raise WrongScim("`emails` must be a list of objects with a `value`.", "invalidValue")
    primary = [each for each in listed if _flag(_get(each, "primary"), usual=False)]
    return next((found for each in (*primary, *listed) if (found := _text(each, "value"))), "")
