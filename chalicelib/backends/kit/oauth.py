"""Access tokens as OAuth 2 has them: one exchange over HTTP, and what its answer says, well or badly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.rest import HEADERS, NoAnswer, RestAnswer, RestCall, Sender
from chalicelib.domain.instants import MINUTE, SECOND, Micros, retry_after
from chalicelib.errors import InvalidCredentials, Throttled, Transient

MARGIN: Micros = 5 * MINUTE  # before its end, in which a token isn't used any more
SECRETS = ("client_secret", "client_assertion", "refresh_token")  # of a form


class TokenService:
    def __init__(self, provider: str, where: str, send: Sender, now: Now) -> None:
        """`where`: the service, in messages."""
        self.where = where
        self._provider, self._send, self._now = provider, send, now

    def exchanged(self, url: str, form: Mapping[str, str], deadline: float) -> tuple[str, Micros]:
        """What `AccessToken` fetches: the token for a form, and for how long it may be used. Raises InvalidCredentials
        if the form is refused."""
        at = urlsplit(url)
        headers = {**HEADERS, "Content-Type": "application/x-www-form-urlencoded"}
        call = RestCall("POST", f"{at.scheme}://{at.netloc}", at.path, headers=headers, body=urlencode(form).encode())
        hidden = tuple(form[name] for name in SECRETS if name in form)
        try:
            answer = self._send(call, deadline)
        except NoAnswer as error:
            raise Transient(f"{self.where} has no answer: {cleaned(str(error), hidden)}") from None
        return self.read(answer, hidden)

    def read(self, answer: RestAnswer, hidden: Sequence[str] = ()) -> tuple[str, Micros]:
        data = _object(answer.body)
        if answer.status == 200 and isinstance(token := data.get("access_token"), str) and token:
            return token, _lasts(data.get("expires_in")) - MARGIN
        text = str(data.get("error_description") or data.get("error") or "").partition("\r\n")[0]
        shown = f"{self.where} answers {answer.status}: {cleaned(text, hidden)}"
        if answer.status == 429:
            raise Throttled(shown, retry_after=retry_after(answer.headers.get("retry-after", ""), self._now()) / SECOND)
        if answer.status in (400, 401, 403):
            raise InvalidCredentials(f"{self._provider} refused the credentials: {shown}")
        raise Transient(shown)


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def _lasts(given: object) -> Micros:
    """A number, or a text of one; a token that doesn't say so serves once."""
    try:
        seconds = float(str(given))
    except ValueError:
        return 0
    return round(seconds * SECOND) if math.isfinite(seconds) else 0
