"""`${{ namespace.name }}` in text.

The grammar: two dollars escape (`$${{ x }}` is the text `${{ x }}`), spaces inside the braces don't count, and the
parts before and after the first dot begin with a letter or `_`. The client fills in `run.args` and `env`, the server
`secrets` just before a job starts. So a caller names the namespaces that it fills in; all others stay as they are.
Where each may be used, and the problems with the others, are in `references`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

_ESCAPED = "$${{"
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_.]*)")
_SECRET = re.compile(r"secrets\.([A-Za-z0-9_-]{1,200})")  # any name that a secret may have
_ADDRESS = re.compile(r"groups(\[[0-9]{1,6}\]\.(?:nodes|replicas)\[[0-9]{1,6}\]\.IP_ADDRESS)")  # of a node


@dataclass(frozen=True)
class Reference:
    namespace: str
    name: str
    written: str  # including the braces

    closed: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.namespace}{'' if self.name.startswith('[') else '.'}{self.name}"

    @property
    def shown(self) -> str:
        return f"${{{{ {self} }}}}"


@dataclass(frozen=True)
class Unread:
    """A text that looks like a reference but isn't one."""

    written: str
    closed: bool = True

    @property
    def shown(self) -> str:
        return self.written if len(self.written) <= 60 else f"{self.written[:57]}..."


def fill(text: str, values: Mapping[str, Mapping[str, str]], *, unescape: bool = True) -> str:
    """The text with the references to these namespaces replaced. All others, and malformed ones, stay as they are.
    `unescape`: this is the last step, so escapes are removed, too."""
    if "${{" not in text:
        return text
    pieces: list[str] = []
    for part in _parts(text):
        if isinstance(part, Reference):
            pieces.append(values.get(part.namespace, {}).get(part.name, part.written))
        elif isinstance(part, Unread):
            pieces.append(part.written)
        else:
            pieces.append("${{" if unescape and part == _ESCAPED else part)
    return "".join(pieces)


def unescaped(value: Any) -> Any:
    """Plain data with the escapes in all its texts removed."""
    if isinstance(value, str):
        return fill(value, {})
    if isinstance(value, Mapping):
        return {name: unescaped(each) for name, each in value.items()}
    return [unescaped(each) for each in value] if isinstance(value, list | tuple) else value


def references(text: str) -> Iterator[Reference | Unread]:
    """All references of a text, including malformed ones."""
    return (part for part in _parts(text) if not isinstance(part, str)) if "${{" in text else iter(())


def secrets_in(text: str) -> list[str]:
    """The names of the secrets that a text refers to; invalid references count as text."""
    return [part.name for part in references(text) if isinstance(part, Reference) and part.namespace == "secrets"]


def _parts(text: str) -> Iterator[str | Reference | Unread]:
    """Split a text into plain text, escapes and references, in order."""
    at = 0
    # Not one regular expression: that would search for the end again from every start.
    while (start := text.find("${{", at)) >= 0:
        if start > at and text[start - 1] == "$":
            yield text[at : start - 1]
            yield _ESCAPED
            at = start + 3
            continue
        yield text[at:start]
        if (end := text.find("}}", start + 3)) < 0:
            yield Unread(text[start:], closed=False)
            return
        at = end + 2
        yield _reference(text[start:at])
    yield text[at:]


def _reference(written: str) -> Reference | Unread:
    inside = written[3:-2].strip()
    if address := _ADDRESS.fullmatch(inside):
        return Reference("groups", address[1], written)
    if secret := _SECRET.fullmatch(inside):
        return Reference("secrets", secret[1], written)
    if name := _NAME.fullmatch(inside):
        return Reference(name[1], name[2], written)
    return Unread(written)


def joined_arguments(arguments: Sequence[str]) -> str:
    """The value of `${{ run.args }}`: the arguments after `--`, quoted for a shell. References in them aren't filled
    in."""
    return shlex.join(arguments).replace("${{", _ESCAPED)
