"""`${{ namespace.name }}` in text.

The grammar: two dollars escape (`$${{ x }}` is the text `${{ x }}`), spaces inside the braces don't count, and what is
on either side of the first dot begins with a letter or `_`. Who fills in what differs: `run.args` and `env` the client,
`secrets` the server just before a job starts. So a caller names the namespaces it fills in; all else stays as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_OPENING = re.compile(r"(?<!\$)\$\{\{")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_.]*)")
_SECRET = re.compile(r"secrets\.([A-Za-z0-9_-]{1,200})")  # any name that a secret may have
_ADDRESS = re.compile(r"groups(\[[0-9]{1,6}\]\.(?:nodes|replicas)\[[0-9]{1,6}\]\.IP_ADDRESS)")  # of a node


class Unreadable(ValueError):
    """A reference that can't be read or filled in. The text says which and why."""


@dataclass(frozen=True)
class Reference:
    namespace: str
    name: str
    written: str = field(default="", compare=False)  # braces and all

    def __str__(self) -> str:
        return f"{self.namespace}{'' if self.name.startswith('[') else '.'}{self.name}"


def references(text: str) -> Iterator[Reference]:
    """What a text refers to, in order. Raises Unreadable."""
    for found in _parts(text):
        if isinstance(found, Reference):
            yield found


def fill(text: str, values: Mapping[str, Mapping[str, str]], *, unescape: bool = True, strict: bool = True) -> str:
    """The text with the references to these namespaces replaced. Those to others stay, and so do escapes before them.

    `unescape` is for whoever comes last: an escape must survive until then. Unless `strict`, what can't be read
    is text.
    """
    if "${{" not in text:
        return text
    pieces: list[str] = []
    for part in _parts(text, strict):
        if isinstance(part, str):
            pieces.append(part[1:] if unescape and part.startswith("$${{") else part)
        elif part.namespace not in values:
            pieces.append(part.written)
        elif (value := values[part.namespace].get(part.name)) is None:
            known = ", ".join(f"`{part.namespace}.{name}`" for name in sorted(values[part.namespace])[:8])
            raise Unreadable(f"`${{{{ {part} }}}}` isn't known here" + (f"; there is {known}" if known else ""))
        else:
            pieces.append(value)
    return "".join(pieces)


def secrets_in(text: str) -> list[str]:
    """The names of the secrets a text refers to; what can't be read is text."""
    found = _parts(text, strict=False) if "${{" in text else ()
    return [part.name for part in found if isinstance(part, Reference) and part.namespace == "secrets"]


def _parts(text: str, strict: bool = True) -> Iterator[str | Reference]:
    """Plain text, escapes (beginning with `$${{`) and references, as they come."""
    at = 0
    # Not one expression for all of it: that would look for the end anew at every beginning.
    while (start := text.find("${{", at)) >= 0 and (end := text.find("}}", start + 3)) >= 0:
        escaped = start > at and text[start - 1] == "$"
        yield from _plain(text[at : start - escaped], strict)
        at = end + 2
        written = text[start - escaped : at]
        yield written if escaped else _reference(written, strict)
    yield from _plain(text[at:], strict)


def _reference(written: str, strict: bool) -> str | Reference:
    inside = written[3:-2].strip()
    if address := _ADDRESS.fullmatch(inside):
        return Reference("groups", address[1], written)
    if secret := _SECRET.fullmatch(inside):
        return Reference("secrets", secret[1], written)
    if name := _NAME.fullmatch(inside):
        return Reference(name[1], name[2], written)
    if not strict:
        return written
    shown = written if len(written) <= 60 else written[:57] + "..."
    raise Unreadable(f"`{shown}` isn't a reference; write it like `${{{{ run.args }}}}` or `${{{{ env.NAME }}}}`")


def _plain(text: str, strict: bool) -> Iterator[str]:
    if strict and _OPENING.search(text):
        raise Unreadable("`${{` is never closed; add `}}`, or write `$${{` for the text itself")
    if text:
        yield text


def joined_arguments(arguments: Sequence[str]) -> str:
    """What `${{ run.args }}` stands for: the words after `--`, quoted for a shell."""
    return shlex.join(arguments)
