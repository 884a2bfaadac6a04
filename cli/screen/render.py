"""Tables as text: a pure function of cells and a width.

A table that is too wide for its screen is squeezed step by step, and never truncated: cells wrap at spaces, the widest
column first; then the lesser columns (`below`) move to lines of their own under each row; then words break, after a
hyphen or colon if possible. Without a width (piped output) every cell is on one line. Colour only repeats what the
text says.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chalicelib.printable import printable_lines

NARROWEST = 6
TALLEST = 4  # lines of a cell in a row; a lesser column with a longer one moves under the rows
BREAKS = re.compile(r"[^-:,/]*[-:,/]+|[^-:,/]+")  # where a word may break
UNSHOWN = re.compile("[\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # JSON allows these unescaped
STYLES = {"good": "32", "warn": "33", "bad": "31", "dim": "2", "bold": "1", "": ""}


class Cell(NamedTuple):
    text: str
    style: str = ""


@dataclass
class Table:
    titles: Sequence[str]
    rows: list[list[str | Cell]] = field(default_factory=list)
    right: frozenset[int] = frozenset()  # columns of numbers
    below: tuple[str, ...] = ()  # titles of columns that may move under the row

    def add(self, *cells: str | Cell) -> None:
        self.rows.append(list(cells))


def render(table: Table, width: int | None = None, colour: bool = False) -> str:
    """The table as lines without trailing spaces; headings alone if there are no rows."""
    rows = [[Cell(title, "bold") for title in table.titles]]
    rows += [[_clean(cell if isinstance(cell, Cell) else Cell(cell)) for cell in row] for row in table.rows]
    layout = _layout(table, [[cell.text for cell in row] for row in rows], width)
    lines: list[str] = []
    for at, row in enumerate(rows):
        lines += _row_lines(row, layout, table.right, colour)
        for index in layout.moved if at else ():
            if row[index].text not in ("", "-"):
                label = f"    {table.titles[index].lower()}  "
                pieces = wrap(row[index].text, max((width or 10**6) - len(label), NARROWEST))
                lines += [
                    (label if not n else " " * len(label)) + paint(p, row[index].style, colour)
                    for n, p in enumerate(pieces)
                ]
    return "\n".join(lines)


def _clean(cell: Cell) -> Cell:
    return Cell(printable_lines(cell.text), cell.style)


class TableLayout(NamedTuple):
    widths: dict[int, int]  # of the columns that stay in the row
    moved: list[int]
    gap: str


def _row_lines(row: list[Cell], layout: TableLayout, right: frozenset[int], colour: bool) -> list[str]:
    wrapped = {index: wrap(row[index].text, width) for index, width in layout.widths.items()}
    lines = []
    for number in range(max(len(pieces) for pieces in wrapped.values())):
        parts = []
        for index, pieces in wrapped.items():
            text = pieces[number] if number < len(pieces) else ""
            padding = " " * (layout.widths[index] - cell_width(text))
            shown = paint(text, row[index].style, colour)
            parts.append(padding + shown if index in right else shown + padding)
        lines.append(layout.gap.join(parts).rstrip())
    return lines


def facts(pairs: Sequence[tuple[str, str]], width: int | None = None, colour: bool = False) -> str:
    """Names and values, one per line, the values in one column."""
    side = max((len(name) for name, _ in pairs), default=0) + 2
    room = max((width or 10**6) - side, NARROWEST)
    lines = []
    for name, value in pairs:
        for number, piece in enumerate(wrap(printable_lines(value), room)):
            head = name if number == 0 else ""
            lines.append((paint(head, "bold", colour) + " " * (side - len(head)) + piece).rstrip())
    return "\n".join(lines)


def as_json(value: object) -> str:
    """One indented document, its keys in the order of the server's response. It contains no terminal control
    characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def paint(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and style and text else text


def wrap(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns, broken at spaces; a word only if it is longer than a line."""
    lines = []
    for paragraph in text.split("\n"):
        indent = len(paragraph) - len(paragraph.lstrip(" ")) if paragraph.strip() else 0
        line = " " * min(indent, width // 2)  # preserve the indent
        for word in paragraph.split():
            joined = f"{line} {word}" if line.strip() else line + word
            if cell_width(joined) <= width:
                line = joined
                continue
            if line.strip():
                lines.append(line)
            *full, line = _break(word, width)
            lines += full
        lines.append(line)
    return lines


def _break(word: str, width: int) -> list[str]:
    """A word in lines, broken after punctuation, or anywhere if a piece is longer than a line."""
    lines = [""]
    for found in BREAKS.findall(word):
        piece = found
        if cell_width(lines[-1] + piece) <= width:
            lines[-1] += piece
            continue
        if lines[-1]:
            lines.append("")
        while cell_width(piece) > width:
            head = _head(piece, width)
            lines[-1] = head
            lines.append("")
            piece = piece[len(head) :]
        lines[-1] = piece
    return lines


def cell_width(text: str) -> int:
    """Screen columns: wide characters take two, combining ones none."""
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


def _layout(table: Table, rows: list[list[str]], limit: int | None) -> TableLayout:
    """The first layout of the columns that fits, else the tightest."""
    columns = dict(enumerate(zip(*rows, strict=True)))
    lesser = {i for i, title in enumerate(table.titles) if title in table.below}
    inner = [index for index in columns if index not in lesser]
    layouts = [
        (list(columns), 2, _words),
        (inner, 2, _words),
        (inner, 2, _pieces),
        (inner, 1, _pieces),
        (inner, 1, _crumbs),
    ]
    while layouts:
        staying, gap, pieces_of = layouts.pop(0)
        widths = {i: max(cell_width(line) for text in columns[i] for line in text.split("\n")) for i in staying}
        if limit is None:
            break
        floors = {i: max((cell_width(p) for text in columns[i] for p in pieces_of(text)), default=0) for i in staying}
        _shrink(widths, floors, limit - gap * (len(staying) - 1))
        if sum(widths.values()) + gap * (len(staying) - 1) > limit:
            continue
        tall = {i for i in lesser & set(staying) if any(len(wrap(text, widths[i])) > TALLEST for text in columns[i])}
        if not tall:
            break
        layouts.insert(0, ([i for i in staying if i not in tall], gap, pieces_of))
    return TableLayout(widths, [index for index in columns if index not in widths], " " * gap)


def _shrink(widths: dict[int, int], floors: dict[int, int], room: int) -> None:
    """Narrow the widest columns, none below its floor, until all fit."""
    excess = sum(widths.values()) - room
    while excess > 0:
        spare = [index for index, width in widths.items() if width > floors[index]]
        if not spare:
            return
        widths[max(spare, key=lambda index: widths[index])] -= 1
        excess -= 1


def _words(text: str) -> list[str]:
    """The words, the first with its indent."""
    first, *following = text.split() or [""]
    return [text[: len(text) - len(text.lstrip(" "))] + first, *following]


def _pieces(text: str) -> list[str]:
    return [piece for word in _words(text) for piece in BREAKS.findall(word)]


def _crumbs(text: str) -> list[str]:
    return [_head(piece, NARROWEST) for piece in _pieces(text)]
