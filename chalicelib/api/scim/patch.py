"""PATCH: a resource and operations in, the changed resource out.

Directories stretch the RFC, and mean something by it: Okta sends operations without a path, and Entra `Add` in
capitals, paths as keys of a value, `"False"` for false (`resources` reads that), values for a path that has no element
yet, and the members to remove as the value of a path that says `members`. All of that does here what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from chalicelib.api.scim import GROUP, MOST_OPERATIONS, USER
from chalicelib.api.scim.filters import chosen
from chalicelib.errors import WrongScim

Resource = dict[str, Any]

_PATH = re.compile(
    r"(?:(?P<schema>urn:[\w.:-]{1,200}):)?(?P<name>[A-Za-z$][\w$-]{0,100})"
    r"(?:\[(?P<filter>.{1,300})\])?(?:\.(?P<part>[A-Za-z$][\w$-]{0,100}))?"
)
_OWN = (USER.lower(), GROUP.lower())
_LISTS = ("emails", "members")


def apply(resource: Mapping[str, Any], operations: Any) -> Resource:
    """The resource after all operations. Raises WrongScim, and then none has effect."""
    if not isinstance(operations, list) or not operations:
        raise WrongScim("`Operations` must be a list with at least one operation.", "invalidSyntax")
    if len(operations) > MOST_OPERATIONS:
        raise WrongScim(f"{len(operations)} operations are more than {MOST_OPERATIONS}.", "tooMany")
    changed = deepcopy(dict(resource))
    for operation in operations:
        if not isinstance(operation, Mapping):
            raise WrongScim("Each of `Operations` must be an object.", "invalidSyntax")
        said = {name.lower(): value for name, value in operation.items()}
        op, path, value = str(said.get("op", "")).lower(), said.get("path"), said.get("value")
        if op not in ("add", "replace", "remove"):
            raise WrongScim(f"`op` is {op[:40]!r}; it must be add, replace or remove.", "invalidSyntax")
        if path is not None and not isinstance(path, str):
            raise WrongScim("`path` must be a text.", "invalidPath")
        for each, given in _targets(op, path, value):
            _at(changed, op, each, given)
    return changed


def _targets(op: str, path: str | None, value: Any) -> Sequence[tuple[str, Any]]:
    """Without a path, each key of the value is one."""
    if path:
        return [(path, value)]
    if op == "remove":
        raise WrongScim("An operation that removes needs a `path`.", "noTarget")
    if not isinstance(value, Mapping):
        raise WrongScim("An operation without a `path` needs an object as its `value`.", "invalidValue")
    return [(name, given) for name, given in value.items() if name.lower() not in ("schemas", "id", "meta")]


def _at(resource: Resource, op: str, path: str, value: Any) -> None:
    found = _PATH.fullmatch(path)
    if found is None:
        raise WrongScim(f"{path[:80]!r} can't be read as a path.", "invalidPath", hint="For example: name.givenName")
    name, part, schema = found["name"], found["part"], found["schema"]
    if schema and schema.lower() not in _OWN:  # an extension's
        resource = _object(resource, schema)
    if name.lower() in ("id", "meta", "schemas"):
        raise WrongScim(f"`{name}` can't be changed.", "mutability")
    if found["filter"]:
        _in_list(resource, op, (name, found["filter"], part), value)
    elif part:
        inner = _object(resource, name)
        _set(inner, op, part, value)
    else:
        _set(resource, op, name, value)


def _key(resource: Mapping[str, Any], name: str) -> str:
    """Names of attributes are the same in any case."""
    return next((each for each in resource if each.lower() == name.lower()), name)


def _object(resource: Resource, name: str) -> Resource:
    key = _key(resource, name)
    if not isinstance(resource.get(key), dict):
        resource[key] = {}
    found: Resource = resource[key]
    return found


def _set(resource: Resource, op: str, name: str, value: Any) -> None:
    key = _key(resource, name)
    old = resource.get(key)
    if op == "remove":
        if isinstance(old, list) and value:
            gone = [_same(each) for each in _listed(value)]
            resource[key] = [each for each in old if _same(each) not in gone]
        else:
            resource.pop(key, None)
    elif op == "add" and (isinstance(old, list) or key.lower() in _LISTS):
        known = {_same(each) for each in old or ()}
        resource[key] = [*(old or ()), *(each for each in _listed(value) if _same(each) not in known)]
    elif isinstance(old, dict) and isinstance(value, Mapping):
        resource[key] = {**old, **{_key(old, each): given for each, given in value.items()}}
    else:
        resource[key] = _listed(value) if key.lower() in _LISTS and value is not None else value


def _in_list(resource: Resource, op: str, where: tuple[str, str, str | None], value: Any) -> None:
    name, condition, part = where
    key = _key(resource, name)
    old = resource.get(key)
    elements: list[Any] = old if isinstance(old, list) else []
    those = [each for each in elements if chosen(each, condition)] if elements else []
    if not elements:
        chosen({}, condition)  # refuses one that can't be read
    if op == "remove" and not part:
        resource[key] = [each for each in elements if each not in those]
        return
    if not those and op != "remove":
        those = [{**_made(condition)}]
        resource[key] = [*elements, *those]
    for each in those:
        if part:
            _set(each, op, part, value)
        elif isinstance(value, Mapping):
            each.update(value)
        else:
            raise WrongScim(f"The value of `{name}[…]` must be an object.", "invalidValue")


def _made(condition: str) -> Resource:
    """The element that a condition describes: `type eq "work"` one whose type is so."""
    attribute, _, value = condition.strip().partition(" ")
    return {attribute: value.strip()[2:].strip().strip('"')}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _same(element: Any) -> str:
    """What tells one element of a list from another."""
    return str(element.get(_key(element, "value"))) if isinstance(element, Mapping) else str(element)
