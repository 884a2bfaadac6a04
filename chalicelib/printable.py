"""Makes untrusted text safe to show: without sequences that move a cursor, name a window or reverse the direction.

Jobs control some texts that reach other people's screens, such as the reason of their end or the name of their machine.
So agents' texts are cleaned where they enter, and every text again where the command line shows it. Logs are bytes and
stay as the program wrote them.
"""

from __future__ import annotations

import re

# Complete escape sequences are removed first, or their letters would remain.
_SEQUENCE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?|\x1b[ -/]*[0-Z\\\\^-~]?"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_BREAK = re.compile("[\t\n]")


def printable(text: str) -> str:
    """The text as one safe line."""
    return text if text.isprintable() else _BREAK.sub(" ", printable_lines(text))


def printable_lines(text: str) -> str:
    """The safe text with its line breaks and tabs."""
    if text.isprintable():
        return text
    return _CONTROL.sub(" ", _SEQUENCE.sub("", text.replace("\r\n", "\n")))
