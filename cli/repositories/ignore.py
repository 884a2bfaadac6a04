"""Which files `.gitignore` and `.dstackignore` exclude, by git's rules.

The last matching pattern decides; `!` includes again; a slash inside anchors a pattern to its folder; a slash at the
end means folders only; nothing below an ignored folder can be included again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


def parse_patterns(lines: Iterable[str], folder: str = "") -> list[Pattern]:
    """The patterns of the ignore file in `folder` (relative to the root, empty for the root itself)."""
    found = []
    for raw in lines:
        line = _strip(raw)
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        text = line[1:] if negated else line
        text = text.removeprefix("\\") if text.startswith(("\\#", "\\!")) else text
        folders_only = text.endswith("/")
        text = text.rstrip("/")
        if not text:
            continue
        anchored = "/" in text
        prefix = re.escape(f"{folder}/") if folder else ""
        body = _translate(text.lstrip("/"))
        regex = re.compile(f"{prefix}{'' if anchored else '(?:.*/)?'}{body}", re.DOTALL)
        found.append(Pattern(regex, negated, folders_only))
    return found


def ignored(path: str, is_folder: bool, patterns: list[Pattern]) -> bool:
    """Whether the patterns, in the order they were read, exclude this path relative to the root."""
    verdict = False
    for pattern in patterns:
        if (is_folder or not pattern.folders_only) and pattern.regex.fullmatch(path):
            verdict = not pattern.negated
    return verdict


def _strip(raw: str) -> str:
    """The line without its end and trailing spaces, except those after a backslash."""
    line = raw.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    return line


def _translate(text: str) -> str:
    """A glob as a regular expression: `*` and `?` stay within a name, `**` spans folders."""
    out, at = [], 0
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
        elif text.startswith("/**", at) and at + 3 == len(text):
            out.append("/.*")
            at += 3
        elif text[at] == "*":
            out.append("[^/]*")
            at += 1
        elif text[at] == "?":
            out.append("[^/]")
            at += 1
        elif text[at] == "[" and "]" in text[at + 2 :]:
            end = text.index("]", at + 2)
            inside = text[at + 1 : end].replace("\\", "\\\\")
            out.append(f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]")
            at = end + 1
        else:
            at += 1 if text[at] == "\\" and at + 1 < len(text) else 0
            out.append(re.escape(text[at]))
            at += 1
    return "".join(out)
