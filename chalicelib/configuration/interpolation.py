"""`${{ namespace.name }}` in text.

The grammar: two dollars escape (`$${{ x }}` is the text `${{ x }}`), spaces inside the braces don't count, and the
parts before and after the first dot begin with a letter or `_`. The client fills in `run.args` and `env`, the server
`secrets` just before a job starts. So a caller names the namespaces it fills in; everything else stays as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

_OPENING = re.compile(r"(?<!\$)\$\{\{")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_.]*)")
_SECRET = re.compile(r"secrets\.([A-Za-z0-9_-]{1,200})")  # any name that a secret may have
_ADDRESS = re.compile(r"groups(\[[0-9]{1,6}\]\.(?:nodes|replicas)\[[0-9]{1,6}\]\.IP_ADDRESS)")  # of a node

MOST_TOLD = 20  # of one text; nobody fixes more at once


class Unreadable(ValueError):
    """References that can't be read or filled in; `args` has a message for each."""

    def __str__(self) -> str:
        return "; ".join(self.args)


@dataclass(frozen=True)
class Reference:
    namespace: str
    name: str
    written: str  # braces and all

    def __str__(self) -> str:
        return f"{self.namespace}{'' if self.name.startswith('[') else '.'}{self.name}"


@dataclass(frozen=True)
class Unread:
    """What looks like a reference but isn't one."""

    written: str
    why: str


def fill(
    text: str,
    values: Mapping[str, Mapping[str, str]],
    *,
    later: Set[str] | None = None,
    unescape: bool = True,
    strict: bool = True,
) -> str:
    """The text with the references to these namespaces replaced. Those to others stay, with any escapes before them.

    `later`: the namespaces that others fill in; None for any. `unescape`: this is the last step, so escapes aren't
    needed any more. Raises Unreadable with all problems if `strict`; otherwise invalid references count as text.
    """
    if "${{" not in text:
        return text
    pieces: list[str] = []
    wrong: list[str] = []
    for part in _parts(text):
        if isinstance(part, str):
            pieces.append(part[1:] if unescape and part.startswith("$${{") else part)
            continue
        value = values.get(part.namespace, {}).get(part.name) if isinstance(part, Reference) else None
        if why := _why_not(part, value, values, later):
            wrong.append(why)
        pieces.append(part.written if value is None else value)
    if wrong and strict:
        raise Unreadable(*list(dict.fromkeys(wrong))[:MOST_TOLD])
    return "".join(pieces)


def _why_not(
    part: Reference | Unread, value: str | None, values: Mapping[str, Mapping[str, str]], later: Set[str] | None
) -> str:
    if isinstance(part, Unread):
        return part.why
    if part.namespace in values:
        known = ", ".join(f"`{part.namespace}.{name}`" for name in sorted(values[part.namespace])[:8])
        why = f"`${{{{ {part} }}}}` isn't known here" + (f"; there is {known}" if known else "")
        return why if value is None else ""
    if later is None or part.namespace in later:
        return ""
    known = ", ".join(f"`{name}`" for name in sorted({*values, *later}))
    return f"`${{{{ {part} }}}}` isn't known here; it begins with one of {known}"


def secrets_in(text: str) -> list[str]:
    """The names of the secrets that a text refers to; invalid references count as text."""
    found = _parts(text) if "${{" in text else ()
    return [part.name for part in found if isinstance(part, Reference) and part.namespace == "secrets"]


def _parts(text: str) -> Iterator[str | Reference | Unread]:
    """Plain text, escapes (beginning with `$${{`) and references, as they come."""
    at = 0
    # Not one regular expression: that would search for the end again from every start.
    while (start := text.find("${{", at)) >= 0 and (end := text.find("}}", start + 3)) >= 0:
        escaped = start > at and text[start - 1] == "$"
        yield _plain(text[at : start - escaped])
        at = end + 2
        written = text[start - escaped : at]
        yield written if escaped else _reference(written)
    yield _plain(text[at:])


def _reference(written: str) -> Reference | Unread:
    inside = written[3:-2].strip()
    if address := _ADDRESS.fullmatch(inside):
        return Reference("groups", address[1], written)
    if secret := _SECRET.fullmatch(inside):
        return Reference("secrets", secret[1], written)
    if name := _NAME.fullmatch(inside):
        return Reference(name[1], name[2], written)
    shown = written if len(written) <= 60 else written[:57] + "..."
    why = f"`{shown}` isn't a reference; write it like `${{{{ run.args }}}}` or `${{{{ env.NAME }}}}`"
    return Unread(written, why)


def _plain(text: str) -> str | Unread:
    if _OPENING.search(text):
        return Unread(text, "`${{` is never closed; add `}}`, or write `$${{` for the text itself")
    return text


def joined_arguments(arguments: Sequence[str]) -> str:
    """What `${{ run.args }}` stands for: the words after `--`, quoted for a shell."""
    return shlex.join(arguments)
