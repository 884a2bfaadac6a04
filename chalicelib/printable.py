"""Text of others, as it may be shown: without what moves a cursor, names a window or turns the direction of reading.

A job writes what it likes, and some of it reaches other people's screens: why it ended, what its machine is called. So
agents' texts are cleaned where they enter and every text again where the command line shows it. Logs are bytes, and
stay what the program wrote.
"""

from __future__ import annotations

import re

# Whole sequences first, or their letters would remain: of a terminal's controls, of its commands, of any other escape.
_SEQUENCE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?|\x1b[ -/]*[0-Z\\\\^-~]?"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_BREAK = re.compile("[\t\n]")


def printable(text: str) -> str:
    """One line of text that can do nothing but be read."""
    return text if text.isprintable() else _BREAK.sub(" ", printable_lines(text))


def printable_lines(text: str) -> str:
    """The same, with its line breaks and tabs."""
    if text.isprintable():
        return text
    return _CONTROL.sub(" ", _SEQUENCE.sub("", text.replace("\r\n", "\n")))
