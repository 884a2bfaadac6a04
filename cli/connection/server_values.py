"""Checks of values from a server before they reach another program on this machine: SSH, git, a browser, a shell.

A line break, an option or a quotation mark in such a value could have a meaning for that program.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from chalicelib.errors import Refused

HINT = "Is it the server you mean? `dstack project list` shows its address."
_WEB = re.compile(r"https?://[A-Za-z0-9\[][A-Za-z0-9._:\]-]*(?:[/?#][!#$%&'()*+,./:;=?@\[\]_~A-Za-z0-9-]*)?")
_KEY = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,30}PRIVATE KEY)-----\s[A-Za-z0-9+/=,:\s-]{1,20000}-----END \1-----\s*")
_PUBLIC = re.compile(r"[a-z0-9@.-]{1,60} [A-Za-z0-9+/]{16,4000}={0,3}(?: [^\x00-\x1f\x7f]{0,500})?\s*")
_TOKEN = re.compile(r"[!-~]{1,4000}")
_WORD = re.compile(r"[^\W_][\w.@+-]*")


def checked(pattern: re.Pattern[str], value: object, what: str) -> str:
    """The value, if it matches the pattern. Raises Refused with a part of the value, unless it is a secret."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise refused(f"{str(value)[:60]!r}", what)
    return value


def refused(sent: str, what: str) -> Refused:
    return Refused(f"The server sent {sent} as {what}, which it can't be, so it wasn't used.", hint=HINT)


def web_address(value: object) -> str:
    """An address for a browser: http or https, with a host."""
    address = checked(_WEB, value, "a web address")
    try:
        known = urlsplit(address).hostname and urlsplit(address).port != 0
    except ValueError:  # an unmatched bracket, or an invalid port
        known = False
    if not known:
        raise refused(f"{address[:60]!r}", "a web address")
    return address


def private_key(value: object) -> str:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise refused("something else", "a private key")
    return value


def public_key(value: object) -> str:
    return checked(_PUBLIC, value, "a public key")


def token(value: object) -> str:
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise refused("something else", "a token")
    return value


def seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86400:
        raise refused(f"{str(value)[:60]!r}", "a number of seconds")
    return value


def is_word(value: object) -> bool:
    """Is the value a single word for a shell, so that it can be completed?"""
    return isinstance(value, str) and bool(_WORD.fullmatch(value))
