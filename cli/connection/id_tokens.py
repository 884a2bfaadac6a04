"""The token with which the place where a program runs says what it is: a CI job of a repository, for example."""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

from chalicelib.errors import Refused
from chalicelib.loopback import is_loopback
from cli.connection.client import dial
from cli.screen.terminal import STANDARD_INPUT, Terminal

VARIABLE = "DSTACK_ID_TOKEN"
ADDRESS, KEY = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"  # GitHub sets them
LARGEST = 65_536  # bytes


def id_token(here: Terminal, file: str | None, audience: str) -> str:
    """The token in a file, or in DSTACK_ID_TOKEN, or that GitHub Actions makes for this audience."""
    if file is not None:
        return _alone(_read(here, file), f"{file} contains no token.")
    if here.env.get(VARIABLE):
        return _alone(here.env[VARIABLE], f"{VARIABLE} contains no token.")
    if here.env.get(ADDRESS) and here.env.get(KEY):
        return _of_github(here, audience)
    raise Refused(
        "There is no token of the place where this runs.",
        hint=f"In GitHub Actions, give the job `permissions: id-token: write`; elsewhere, put its ID token into "
        f"{VARIABLE} or name its file with --id-token-file.",
    )


def _read(here: Terminal, file: str) -> str:
    if file == STANDARD_INPUT:
        return sys.stdin.read(LARGEST)
    try:
        return (here.cwd / Path(file).expanduser()).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} can't be read ({getattr(error, 'strerror', None) or 'it is no text'}).") from error


def _of_github(here: Terminal, audience: str) -> str:
    env = here.env
    address = urlsplit(env[ADDRESS])
    if address.scheme != "https" and not is_loopback(env[ADDRESS]):
        raise Refused(f"{ADDRESS} isn't an https address, so no token is asked for there.")
    path = f"{address.path or '/'}?{address.query}&audience={quote(audience, safe='')}"
    try:
        connection = (here.via or dial)(address)
        try:
            headers = {"Authorization": f"Bearer {env[KEY]}", "Accept": "application/json"}
            connection.request("GET", path, None, headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Refused(f"GitHub's tokens can't be had now ({type(error).__name__}).", hint="Try again.") from error
    if answer.status != 200:
        raise Refused(
            f"GitHub gave no token: it answered {answer.status}.", hint="Does the job have `id-token: write`?"
        )
    try:
        found = json.loads(body)["value"]
    except (ValueError, KeyError, TypeError):
        found = ""
    return _alone(found if isinstance(found, str) else "", "GitHub's answer contains no token.")


def _alone(text: str, otherwise: str) -> str:
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise Refused(otherwise)
    return text
