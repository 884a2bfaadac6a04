"""Translates a provider's failures into our errors. The error's text names the failed call, and where it failed.

A provider reports a failure by a code, by a text, or only by the HTTP status. The first of these that is in the table
decides. A failure that isn't in the table has an unknown outcome, and its text shows the code.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from chalicelib import errors as ours
from chalicelib.backends.kit.tables import table
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Bug,
    Gone,
    InvalidCredentials,
    MissingPermission,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)
from chalicelib.printable import printable

LONGEST = 300  # characters of a provider's text
SHORTEST_SECRET = 6  # a shorter one would blank out words
HIDDEN = "[hidden]"

Kind = type[BackendError]
# What a status means if the provider says nothing else. Every 5xx is an unknown outcome.
STATUSES: Mapping[int, Kind] = {
    400: Unfit,
    401: InvalidCredentials,
    402: QuotaExceeded,
    403: MissingPermission,
    404: Gone,
    405: Unfit,
    409: AlreadyThere,
    410: Gone,
    413: Unfit,
    422: Unfit,
    429: Throttled,
}


@dataclass(frozen=True)
class ProviderFailure:
    """What a provider reported about a failed call."""

    code: str = ""
    text: str = ""
    status: int = 0
    retry_after: float = 0.0  # seconds; 0: not given


class ErrorTable:
    def __init__(
        self,
        provider: str,
        codes: Iterable[tuple[Kind, str]] = (),
        texts: Iterable[tuple[Kind, str]] = (),
        statuses: Mapping[int, Kind] = STATUSES,
    ) -> None:
        """`codes`: for each kind, separated by spaces. `texts`: patterns for the provider's text."""
        self._provider, self._statuses = provider, statuses
        self._codes = {code: kind for kind, listed in codes for code in listed.split()}
        self._texts = [(re.compile(pattern, re.IGNORECASE), kind) for kind, pattern in texts]

    @classmethod
    def read(cls, provider: str, name: str) -> ErrorTable:
        """From a file, by the names of our errors: their `codes`, in words, and `texts`, a pattern for each; and which
        of them a status is, where that isn't the usual one."""
        found = table(name)
        return cls(
            provider,
            [(_kind(kind), codes) for kind, codes in found.get("codes", {}).items()],
            [(_kind(kind), pattern) for kind, pattern in found.get("texts", {}).items()],
            {**STATUSES, **{int(status): _kind(kind) for status, kind in found.get("statuses", {}).items()}},
        )

    def kind(self, failure: ProviderFailure, meanings: Mapping[str | int, Kind] | None = None) -> Kind:
        """`meanings`: codes and statuses with another meaning for this call."""
        meanings = meanings or {}
        found = meanings.get(failure.code) or self._codes.get(failure.code)
        found = found or next((kind for pattern, kind in self._texts if pattern.search(failure.text)), None)
        return found or meanings.get(failure.status) or self._statuses.get(failure.status) or Transient

    def error(
        self,
        failure: ProviderFailure,
        action: str,
        region: str = "",
        *,
        meanings: Mapping[str | int, Kind] | None = None,
        secrets: Sequence[str] = (),
    ) -> BackendError:
        kind, text = self.kind(failure, meanings), cleaned(failure.text, secrets)
        code = cleaned(failure.code, secrets) or (str(failure.status) if failure.status else "no code")
        place = f" in {region}" if region else ""
        message = f"{action}{place}: {code}: {text}" if text else f"{action}{place}: {code}"
        if kind is InvalidCredentials:
            message = f"{self._provider} refused the credentials ({code}): {text}"
        elif kind is MissingPermission:
            message = f"{self._provider} doesn't allow {action}{place} ({code}): {text}"
        if kind is Throttled and failure.retry_after:
            error: BackendError = Throttled(message, retry_after=failure.retry_after)
        else:
            error = kind(message)
        error.provider_code = failure.code
        return error


def _kind(name: str) -> Kind:
    found: object = getattr(ours, name, None)
    if not (isinstance(found, type) and issubclass(found, BackendError)):
        raise Bug(f"{name} is none of the errors that calls to providers end with")
    return found


def cleaned(text: str, secrets: Iterable[str] = ()) -> str:
    """A provider's text in a form that people may see: one line of readable length, without secrets. When a provider
    refuses a request, it often repeats what was in it."""
    for secret in secrets:
        for form in _forms(secret):
            text = text.replace(form, HIDDEN)
    text = printable(text).strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _forms(secret: str) -> list[str]:
    """The forms in which a secret may come back: as it is, as JSON, in a URL, in base64."""
    if len(secret) < SHORTEST_SECRET:
        return []
    quoted = orjson.dumps(secret).decode()[1:-1]
    return [secret, quoted, quote(secret, safe=""), quote(secret), base64.b64encode(secret.encode()).decode()]


# --- failures of a JSON API ------------------------------------------------------------------------------------------


def described(data: Any, status: int) -> ProviderFailure:
    """The failure in a JSON API's response, in any of the usual forms: an object or a text under `error`, a list under
    `errors`, an RFC 9457 problem, a Kubernetes status, or code and message at the top level."""
    if isinstance(data, str):
        return ProviderFailure("", data, status)
    if not isinstance(data, Mapping):
        return ProviderFailure("", "", status)
    error, errors = data.get("error"), data.get("errors")
    inner = error if isinstance(error, Mapping) else data
    first = inner.get("errors") if isinstance(inner.get("errors"), list) else errors
    listed = first[0] if isinstance(first, list) and first else None
    text = _text(inner, "message", "msg", "detail", "title") or _text(data, "message", "msg")
    if isinstance(error, str):  # it is the code if there is a message beside it, or if it looks like one
        return ProviderFailure(error if text or " " not in error else "", text or error, status)
    code = _text(inner, "code", "reason")
    if isinstance(listed, str):
        return ProviderFailure(code, listed, status)
    if isinstance(listed, Mapping):
        code = code or _text(listed, "reason", "code")
        text = text or _text(listed, "message", "detail", "title")
    return ProviderFailure(code or _text(inner, "status"), text, status)


def _text(data: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := data.get(name), str) and value), "")
