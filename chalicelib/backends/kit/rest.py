"""A client for a provider's JSON API. A call is one attempt with one deadline, and every failure is one of our errors.

The engine repeats calls and must know about each refusal, so nothing is retried here. Redirects aren't followed,
because that would send the credentials elsewhere. An unexpected response, such as an HTML page instead of JSON, has an
unknown outcome; it is never treated as an empty one.

Signing, sending and recognising failures are inputs: `sign` returns the headers that authenticate the call, `send` is
HTTP, and `failure_of` reads a response (some providers report failures with status 200).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import orjson

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import ErrorTable, Kind, ProviderFailure, cleaned, described
from chalicelib.backends.kit.limits import TokenBucket, take_from_all
from chalicelib.domain.instants import SECOND, retry_after
from chalicelib.errors import Bug, Throttled, Transient

DEADLINE = 30.0  # seconds, the default
LARGEST = 64 << 20  # bytes of an answer
HEADERS: Mapping[str, str] = {"Accept": "application/json", "User-Agent": "dstack-serverless"}


@dataclass(frozen=True)
class RestCall:
    """A request."""

    method: str
    origin: str  # https://api.example.com
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # they authenticate the call
    body: bytes = field(default=b"", repr=False)

    @property
    def url(self) -> str:
        query = f"?{urlencode(self.query)}" if self.query else ""
        return f"{self.origin}{self.path}{query}"


@dataclass(frozen=True)
class RestAnswer:
    """A response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def at(endpoint: str, base: str) -> str:
    """`base`, but of what stands in for the provider at `endpoint`, if anything does."""
    return endpoint + urlsplit(base).path if endpoint else base


class CallOptions(TypedDict, total=False):
    """What a provider's own client passes on to `RestClient.call` as it is."""

    body: Any
    headers: Mapping[str, str] | None
    region: str
    meanings: Mapping[str | int, Kind] | None
    secrets: Sequence[str]


class NoAnswer(Exception):
    """There is no response: the call may have been carried out."""


Signer = Callable[[RestCall], Mapping[str, str]]
Sender = Callable[[RestCall, float], RestAnswer]  # with a timeout in seconds, after which it raises NoAnswer
FailureReader = Callable[[int, Any], ProviderFailure | None]  # by the status and the decoded body


def bearer(key: str) -> Signer:
    """The usual authentication with a key."""
    return lambda _: {"Authorization": f"Bearer {key}"}


def failure_by_status(status: int, data: Any) -> ProviderFailure | None:
    return None if 200 <= status < 300 else described(data, status)


class RestClient:
    def __init__(
        self,
        base: str,
        table: ErrorTable,
        sign: Signer,
        *,
        secrets: Sequence[str] = (),
        bucket: TokenBucket | None = None,
        send: Sender | None = None,
        failure_of: FailureReader = failure_by_status,
        now: Now = system_time,
        ending: str = "",
    ) -> None:
        """`base`: the address, with the common prefix of all paths. `secrets`: what no text may show, such as the key.
        `bucket`: the account's, shared by all its clients. `ending`: of all paths, such as `/`."""
        home = urlsplit(base)
        self._origin, self._prefix = f"{home.scheme}://{home.netloc}", home.path.rstrip("/")
        self._ending = ending
        self._table, self._sign, self._failure_of = table, sign, failure_of
        self._secrets, self._bucket, self._now = tuple(secrets), bucket, now
        self._send = send or HttpSender()

    def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        region: str = "",
        meanings: Mapping[str | int, Kind] | None = None,
        secrets: Sequence[str] = (),
        buckets: Sequence[TokenBucket] = (),
        deadline: float = DEADLINE,
    ) -> Any:
        """The decoded response; None if it is empty. `path`: the segments, each of which is quoted. `headers`: beside
        the usual ones. `meanings`: codes and statuses that mean something else for this call. `secrets`: those in its
        body. `buckets`: the call's own; if the provider throttles it, they are paused instead of the account's."""
        call = RestCall(
            method,
            self._origin,
            self._prefix + "".join(f"/{_segment(part)}" for part in path) + self._ending,
            tuple((name, str(value)) for name, value in (query or {}).items()),
            {**HEADERS, **({} if body is None else {"Content-Type": "application/json"}), **(headers or {})},
            b"" if body is None else orjson.dumps(body),
        )
        return self._answered(call, region, meanings, (*self._secrets, *secrets), buckets, deadline)

    def follow(self, url: str, *, region: str = "") -> Any:
        """The page behind a provider's link. A link to another host is refused, because the call is signed."""
        link = urlsplit(url)
        if f"{link.scheme}://{link.netloc}" != self._origin:
            raise Transient(f"A list goes on elsewhere than it began: at {cleaned(url, self._secrets)}.")
        query = tuple(parse_qsl(link.query, keep_blank_values=True))
        call = RestCall("GET", self._origin, link.path, query, HEADERS)
        return self._answered(call, region, None, self._secrets, (), DEADLINE)

    def close(self) -> None:
        if isinstance(self._send, HttpSender):
            self._send.close()

    def _answered(
        self,
        call: RestCall,
        region: str,
        meanings: Mapping[str | int, Kind] | None,
        secrets: Sequence[str],
        buckets: Sequence[TokenBucket],
        deadline: float,
    ) -> Any:
        action = f"{call.method} {call.path}"
        account = (self._bucket,) if self._bucket else ()
        take_from_all([*buckets, *account])
        signed = replace(call, headers={**call.headers, **self._sign(call)})
        try:
            answer = self._send(signed, deadline)
        except NoAnswer as error:
            place = f" in {region}" if region else ""
            raise Transient(f"{action}{place} has no answer: {cleaned(str(error), secrets)}") from None
        failure = self._failure(answer)
        if failure is not None:
            found = self._table.error(failure, action, region, meanings=meanings, secrets=secrets)
            if isinstance(found, Throttled):
                for bucket in buckets or account:
                    bucket.pause(found.retry_after)
            raise found
        return orjson.loads(answer.body) if answer.body else None

    def _failure(self, answer: RestAnswer) -> ProviderFailure | None:
        try:
            data = orjson.loads(answer.body) if answer.body else None
        except orjson.JSONDecodeError:
            text = _plain(answer.body)
            if 200 <= answer.status < 300:
                return ProviderFailure("", f"the answer isn't JSON: {text}", answer.status)
            data = text
        failure = self._failure_of(answer.status, data)
        if failure is None or not (wait := answer.headers.get("retry-after", "")):
            return failure
        return replace(failure, retry_after=retry_after(wait, self._now()) / SECOND)


def _segment(part: str) -> str:
    """Quotes a segment. An empty one, or one of dots, is refused: the call would be about something else."""
    if part in ("", ".", ".."):
        raise Bug(f"{part!r} can't be a part of a path")
    return quote(part, safe="")


def _plain(body: bytes) -> str:
    """The readable part of a response that isn't JSON: its text without HTML tags."""
    text = body[:4096].decode(errors="replace")
    return " ".join(re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE).split())


class HttpSender:
    """HTTP with persistent connections."""

    def __init__(self, connections: int = 16, largest: int = LARGEST, pool: Callable[[int], Any] | None = None) -> None:
        """`pool`: makes urllib3's pool for so many connections, if it isn't the usual one."""
        self._connections, self._largest, self._lock = connections, largest, threading.Lock()
        self._made_by = pool
        self._pool: Any = None

    def __call__(self, call: RestCall, deadline: float) -> RestAnswer:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        until = time.monotonic() + deadline
        try:
            found = self._connected().request(
                call.method,
                call.url,
                body=call.body or None,
                headers=dict(call.headers),
                timeout=Timeout(total=deadline),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                body = _read(found, until, self._largest)
            except BaseException:
                found.close()  # the rest of this response would be read as the next one
                raise
            found.release_conn()
        except (HTTPError, OSError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        return RestAnswer(found.status, {name.lower(): value for name, value in found.headers.items()}, body)

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.clear()

    def _connected(self) -> Any:
        with self._lock:
            if self._pool is None:
                from urllib3 import PoolManager

                made_by = self._made_by
                self._pool = made_by(self._connections) if made_by else PoolManager(maxsize=self._connections)
            return self._pool


def _read(answer: Any, until: float, largest: int) -> bytes:
    """Reads in pieces, so that a provider that sends a little now and then can't block a call forever."""
    body = bytearray()
    while piece := answer.read1(1 << 16):
        body += piece
        if len(body) > largest:
            raise OSError(f"the answer is larger than {largest} bytes")
        if time.monotonic() > until:
            raise TimeoutError("the answer doesn't end")
    return bytes(body)
