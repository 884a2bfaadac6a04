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

_REFERENCE = re.compile(r"(\$?)\$\{\{(.*?)\}\}", re.DOTALL)
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
    for found in _REFERENCE.finditer(text):
        yield from _plain(text[at : found.start()], strict)
        at = found.end()
        if found[1]:
            yield found[0]
            continue
        inside = found[2].strip()
        if address := _ADDRESS.fullmatch(inside):
            yield Reference("groups", address[1], found[0])
        elif secret := _SECRET.fullmatch(inside):
            yield Reference("secrets", secret[1], found[0])
        elif name := _NAME.fullmatch(inside):
            yield Reference(name[1], name[2], found[0])
        elif strict:
            shown = found[0] if len(found[0]) <= 60 else found[0][:57] + "..."
            raise Unreadable(
                f"`{shown}` isn't a reference; write it like `${{{{ run.args }}}}` or `${{{{ env.NAME }}}}`"
            )
        else:
            yield found[0]
    yield from _plain(text[at:], strict)


def _plain(text: str, strict: bool) -> Iterator[str]:
    if strict and _OPENING.search(text):
        raise Unreadable("`${{` is never closed; add `}}`, or write `$${{` for the text itself")
    if text:
        yield text


def joined_arguments(arguments: Sequence[str]) -> str:
    """What `${{ run.args }}` stands for: the words after `--`, quoted for a shell."""
    return shlex.join(arguments)
