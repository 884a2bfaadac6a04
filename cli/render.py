"""Tables as text: a pure function of cells and a width.

A table that is too wide for its screen wraps its cells at spaces, the widest column first, and cuts nothing; a word is
folded only if the words alone don't fit. Without a width (output that is piped) every cell is on one line.
Colour says nothing that the words don't say too.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

GAP = "  "
NARROWEST = 6
STYLES = {"good": "32", "warn": "33", "bad": "31", "dim": "2", "bold": "1", "": ""}


class Cell(NamedTuple):
    text: str
    style: str = ""


@dataclass
class Table:
    titles: Sequence[str]
    rows: list[list[str | Cell]] = field(default_factory=list)
    right: frozenset[int] = frozenset()  # columns of numbers

    def add(self, *cells: str | Cell) -> None:
        self.rows.append(list(cells))


def render(table: Table, width: int | None = None, colour: bool = False) -> str:
    """The table as lines without trailing spaces; headings alone if there are no rows."""
    rows = [[Cell(title, "bold") for title in table.titles]]
    rows += [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in table.rows]
    widths = _widths([[cell.text for cell in row] for row in rows], width)
    lines: list[str] = []
    for row in rows:
        wrapped = [wrap(cell.text, room) for cell, room in zip(row, widths, strict=True)]
        for number in range(max(len(cell) for cell in wrapped)):
            parts = []
            for index, (cell, pieces) in enumerate(zip(row, wrapped, strict=True)):
                text = pieces[number] if number < len(pieces) else ""
                padding = " " * (widths[index] - cell_width(text))
                shown = paint(text, cell.style, colour)
                parts.append(padding + shown if index in table.right else shown + padding)
            lines.append(GAP.join(parts).rstrip())
    return "\n".join(lines)


def facts(pairs: Sequence[tuple[str, str]], width: int | None = None, colour: bool = False) -> str:
    """Names and values, one a line, the values in one column."""
    side = max((len(name) for name, _ in pairs), default=0) + len(GAP)
    room = max((width or 10**6) - side, NARROWEST)
    lines = []
    for name, value in pairs:
        for number, piece in enumerate(wrap(value, room)):
            head = name if number == 0 else ""
            lines.append((paint(head, "bold", colour) + " " * (side - len(head)) + piece).rstrip())
    return "\n".join(lines)


def as_json(value: Any) -> str:
    """One document, indented, its keys in the order of the server's answer."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def paint(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and style and text else text


def wrap(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns, broken at spaces, in a word only where it is longer than a line."""
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for part in paragraph.split(" "):
            word = part
            joined = f"{line} {word}" if line else word
            if cell_width(joined) <= width:
                line = joined
                continue
            if line:
                lines.append(line)
            while cell_width(word) > width:
                head = _head(word, width)
                lines.append(head)
                word = word[len(head) :]
            line = word
        lines.append(line)
    return lines


def cell_width(text: str) -> int:
    """Columns on a screen: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _head(word: str, width: int) -> str:
    taken = 0
    for index, character in enumerate(word):
        taken += cell_width(character)
        if taken > width and index:
            return word[:index]
    return word


def _widths(rows: list[list[str]], limit: int | None) -> list[int]:
    columns = list(zip(*rows, strict=True))
    widths = [max(cell_width(line) for text in column for line in text.split("\n")) for column in columns]
    if limit is None:
        return widths
    words = [
        max(cell_width(word) for text in column for word in text.split()) if any(column) else 0 for column in columns
    ]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - limit
    for floors in (words, [min(NARROWEST, word) for word in words]):
        while excess > 0:
            spare = [index for index, width in enumerate(widths) if width > floors[index]]
            if not spare:
                break
            widest = max(spare, key=lambda index: widths[index])
            widths[widest] -= 1
            excess -= 1
    return widths
