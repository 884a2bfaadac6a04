"""Environment variables, in three forms: `NAME=value`, `NAME=` and `NAME` in a list, or a mapping.

A bare `NAME` takes its value from the environment in which the configuration is submitted. Until then `{key: NAME}` is
its placeholder, so that reading a file needs no environment and the server notices a variable that wasn't filled in.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from chalicelib.domain.specs.reading import TAG, Reads, Spec, faults
from chalicelib.domain.specs.secrecy import HIDDEN
from chalicelib.errors import Problem

_ITEM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.DOTALL)
_REFERENCE = re.compile(r"\s*\$\{\{\s*secrets\.[\w-]+\s*\}\}\s*")
_NAMES = "one has at least a letter and no `=`, for example `BATCH: 32`"
_HINT = "write `- NAME=value`, or `- NAME` to take it from your own environment"


class EnvSentinel(Spec):
    """A variable that takes its value from the environment in which the configuration is submitted."""

    key: str


def _arm(value: Any) -> str:
    return TAG + ("EnvSentinel" if isinstance(value, dict | EnvSentinel) else "str")


EnvValue = Annotated[
    Annotated[str, Tag(TAG + "str")] | Annotated[EnvSentinel, Tag(TAG + "EnvSentinel")], Discriminator(_arm)
]


def read_env(written: Any) -> Any:
    """The list form as a mapping. A mapping may use any name that a variable can have."""
    if isinstance(written, dict):
        if bad := [name for name in written if isinstance(name, str) and (not name or "=" in name)]:
            raise faults(
                [("invalid-env", f"`{name[:40]}` can't be the name of a variable", _NAMES, "") for name in bad]
            )
        return written
    if not isinstance(written, list | tuple):
        return written
    found: dict[str, Any] = {}
    wrong = []
    for number, item in enumerate(written):
        parts = _ITEM.fullmatch(item) if isinstance(item, str) else None
        if parts is None:
            shown = f"`{item[:40]}`" if isinstance(item, str) else "this entry"
            wrong.append(("invalid-env", f"{shown} isn't a variable", _HINT, str(number)))
        elif parts[1] in found:
            wrong.append(("duplicate", f"the variable `{parts[1]}` is set twice", "keep one of them", str(number)))
        else:
            found[parts[1]] = {"key": parts[1]} if parts[2] is None else parts[2]
    if wrong:
        raise faults(wrong)
    return found


_LIST_FORM = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*(=.*)?$"},
    "examples": [["HF_TOKEN", "BATCH=32"]],
}

Env = Annotated[dict[str, EnvValue], Reads(read_env, (_LIST_FORM,))]


def unresolved(env: dict[str, str | EnvSentinel], path: str) -> list[Problem]:
    """Problems for the variables that have no value yet."""
    return [
        Problem(
            f"the variable `{value.key}` has no value",
            f"{path}.{name}",
            hint=f"`export {value.key}=...` where you apply this, or write `{name}=value`",
            code="unset-variable",
        )
        for name, value in env.items()
        if isinstance(value, EnvSentinel)
    ]


def plain(env: dict[str, str | EnvSentinel]) -> dict[str, str]:
    """The variables that have a value. A server refuses a spec with unresolved ones before it calls this."""
    return {name: value for name, value in env.items() if isinstance(value, str)}


def without_values(written: Any) -> Any:
    """Variables, in either form, with their values hidden; references to secrets stay."""
    if isinstance(written, dict):
        return {name: value if _names_only(value) else HIDDEN for name, value in written.items()}
    if isinstance(written, list):
        return [_without_value(item) for item in written]
    return written


def with_values(written: Any, stored: Any) -> Any:
    """The inverse, with the hidden values taken from what was stored. Those that it doesn't have stay hidden."""
    known = dict(_pairs(stored))
    if isinstance(written, dict):
        return {name: known.get(name, value) if value == HIDDEN else value for name, value in written.items()}
    if isinstance(written, list):
        hidden = {f"{name}={HIDDEN}": f"{name}={value}" for name, value in known.items()}
        return [hidden.get(item, item) if isinstance(item, str) else item for item in written]
    return written


def hidden_names(written: Any) -> list[str]:
    """The variables whose value is hidden."""
    return [name for name, value in _pairs(written) if value == HIDDEN]


def _pairs(written: Any) -> list[tuple[str, Any]]:
    if isinstance(written, dict):
        return list(written.items())
    if not isinstance(written, list):
        return []
    parts = [item.partition("=") for item in written if isinstance(item, str)]
    return [(name, value) for name, sign, value in parts if sign]


def _names_only(value: Any) -> bool:
    return value in (None, "") or (isinstance(value, str) and _REFERENCE.fullmatch(value) is not None)


def _without_value(item: Any) -> Any:
    name, sign, value = str(item).partition("=")
    return f"{name}{sign}{value if _names_only(value) else HIDDEN}"
