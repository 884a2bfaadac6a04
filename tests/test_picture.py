"""The README's picture: what it may hold, and that it shows the session that its script plays."""

from __future__ import annotations

import re
import shlex
from xml.etree import ElementTree

from docs.terminal import COLUMNS, FILES, PICTURE, SESSION, screen

SVG = "{http://www.w3.org/2000/svg}"
TEXT = PICTURE.read_text(encoding="utf-8")


def shown(drawing: str) -> list[str]:
    """The lines that a reader of the picture sees."""
    rows: dict[int, list[tuple[int, str]]] = {}
    root = ElementTree.fromstring(drawing)  # our own file
    width = float(root.findall(f".//{SVG}clipPath")[1][0].attrib["width"]) / COLUMNS
    for piece in root.iter(f"{SVG}text"):
        row = int(piece.attrib["clip-path"].rpartition("-")[2].rstrip(")"))
        rows.setdefault(row, []).append((round(float(piece.attrib["x"]) / width), piece.text or ""))
    lines = []
    for number in range(max(rows) + 1):
        line = ""
        for column, text in sorted(rows.get(number, ())):
            line = line.ljust(column) + text.replace("\xa0", " ")
        lines.append(line.rstrip())
    return lines


def test_it_shows_the_scripts_commands_and_the_file_that_they_use() -> None:
    lines = shown(TEXT)
    assert [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] == [each.line for each in SESSION]
    assert "\n".join(lines[1:]).startswith(FILES["train.dstack.yml"])


def test_it_is_small_and_fetches_nothing() -> None:
    assert len(TEXT.encode()) <= 100_000
    assert re.findall(r"https?://[^\"]*", TEXT) == ["http://www.w3.org/2000/svg"]
    assert "@font-face" not in TEXT and "@import" not in TEXT
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", TEXT))


def test_it_names_no_folder_and_no_host_of_the_machine_that_drew_it() -> None:
    text = "\n".join(shown(TEXT))
    assert not re.search(r"(^|\s)/\w+|\d+\.\d+\.\d+\.\d+|localhost|~", text)


def test_it_reads_the_same_on_a_light_page_and_a_dark_one() -> None:
    """It stands on a background of its own, and each colour of a text has WCAG's contrast of 4.5 with that."""
    (behind,) = re.findall(r'<rect fill="(#\w{6})" stroke', TEXT)
    fills = re.findall(r"\.session-r\d+ { fill: (#\w{6})", TEXT)
    assert len(fills) >= 3
    for fill in fills:
        dark, light = sorted((luminance(behind), luminance(fill)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, fill


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_spinner_leaves_its_last_line() -> None:
    spun = "\x1b[?25l⠋ submitted\r\x1b[2K⠙ submitted\r\n\x1b[?25h\r\x1b[1A\x1b[2K"
    assert screen(f"{spun}running\r\nout\r\r\n\x1b[32mdone\x1b[0m\r\n") == ["running", "out", "\x1b[32mdone\x1b[0m"]


def test_each_command_is_one_of_ours_or_of_every_machines() -> None:
    for command in SESSION:
        programs = [shlex.split(part)[0] for part in command.line.split("|")]
        assert set(programs) <= {"cat", "dstack", "echo", "tail"}
