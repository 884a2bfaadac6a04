"""An account's access token: fetched once, used until shortly before it ends, and dropped when a call is refused. And
the files that it is fetched with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from pathlib import Path

from chalicelib.backends.kit.clock import Now
from chalicelib.domain.instants import Micros
from chalicelib.errors import BackendError, InvalidCredentials

LARGEST = 1 << 16  # bytes of a file


class AccessToken:
    def __init__(self, now: Now, fetch: Callable[[], tuple[str, Micros]]) -> None:
        """`fetch` is one attempt. It returns a token, and for how long that may be used."""
        self._now, self._fetch, self._lock = now, fetch, threading.Lock()
        self._token, self._until = "", 0
        self.attempts = 0  # that have ended
        self._failure: BackendError | None = None  # of the last one

    @property
    def was_fetched(self) -> bool:
        """Has there been a token before?"""
        return bool(self._token)

    def get(self) -> str:
        """Raises what `fetch` raises: who waits for an attempt shares its outcome."""
        return self.after(self.attempts)

    def after(self, attempts: int) -> str:
        """For who asked when so many had ended."""
        with self._lock:
            if self._now() < self._until:
                return self._token
            if self._failure is not None and self.attempts > attempts:
                raise copy(self._failure)
            self._failure, begun = None, self._now()
            try:
                self._token, lasts = self._fetch()
            except BackendError as error:
                self._failure = error
                raise
            finally:
                self.attempts += 1
            self._until = begun + lasts
            return self._token

    def forget(self, token: str = "") -> None:
        """After a call that refused it. Without it, whichever there is."""
        with self._lock:
            if token in ("", self._token):
                self._until = 0


def read_secret(file: str, what: str, hint: str = "") -> str:
    """Of a file with a secret, which no message has a part of: `what` says what it is."""
    try:
        with Path(file).expanduser().open("rb") as opened:
            return opened.read(LARGEST).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't text"
        raise InvalidCredentials(f"{what} can't be read: {why}.", hint=hint) from None
