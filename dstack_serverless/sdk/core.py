"""One request from its first attempt to its answer: which are sent again, when, and what a refusal becomes."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import orjson

from chalicelib.errors import DstackError, Invalid, Refused
from cli.connection.client import is_redirect, redirected
from dstack_serverless.sdk.errors import Unanswered, WaitedTooLong, error_of
from dstack_serverless.sdk.flow import UNSET, Exchange, Flow, Lost, NotSent, Pause, Reply, Request

T = TypeVar("T")
log = logging.getLogger("dstack_serverless")

API_VERSION = "0.22.5"  # of the protocol that the SDK's methods use
PASSING = frozenset({429, 502, 503, 504})  # the same request may succeed in a moment
KEY = "Idempotency-Key"
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_ASKED = 0.2, 5.0, 30.0  # seconds
LEAST = 1.0  # seconds that an answer gets, however late it is


@dataclass(frozen=True)
class Core:
    """Which server, as whom, and how patiently."""

    url: str
    token: str
    project: str
    retries: int
    env: Mapping[str, str] = field(default_factory=dict)
    home: Path = field(default_factory=Path.home)
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    dial: Any = None  # another way to connect for what the command line does, as `cli.connection.client` takes it
    ssh: Any = None  # another SSH client for attachments, likewise

    def ask(self, request: Request[T], by: float | None = None) -> Flow[T]:
        """Sends the request, and again while that is safe: nothing was sent, it only reads, or it has a key by which
        the server knows it again. Raises WaitedTooLong if there is no answer `by` then, on the clock."""
        answer: T
        pauses = self._pauses()
        if request.once and KEY not in request.headers:
            request = keyed(request)
        while True:
            asked = 0.0  # seconds
            try:
                reply = yield Exchange(request, None if by is None else max(by - self.clock(), LEAST))
            except NotSent as error:
                failure: DstackError = _no_server(self.url, error)
            except Lost as error:
                failure = _lost(self.url, error)
                if not may_repeat(request):
                    raise failure from None
            else:
                if is_redirect(reply.status):
                    raise redirected(self.url, reply.status, reply.headers.get("location"))
                decoded = _decoded(reply, request, self.url)
                if reply.status < 400:
                    answer = decoded
                    return answer
                failure, asked = error_of(reply, decoded, request, self.url), _retry_after(reply)
                if reply.status not in PASSING or not may_repeat(request):
                    raise failure
            yield Pause(self._pause(pauses, asked, by, failure))

    def in_project(self) -> str:
        """The project of requests that are made in one."""
        if not self.project:
            raise Refused("No project is named.", hint="Name it: Client(project=…), or DSTACK_PROJECT.")
        return self.project

    def _pause(self, pauses: Iterator[float], asked: float, by: float | None, failure: DstackError) -> float:
        """The seconds until the next attempt. Raises the failure of the last one if there is to be none."""
        left = math.inf if by is None else by - self.clock()
        if left <= 0:
            raise WaitedTooLong(f"There was no answer in time. {failure.message}") from failure
        pause = next(pauses, None)
        if pause is None:
            raise failure
        return min(max(pause, asked), left)

    def _pauses(self) -> Iterator[float]:
        """Between half of each pause and all of it, so that those who failed together don't come back together."""
        for number in range(self.retries):
            yield min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) * (1 + self.random()) / 2


def keyed(request: Request[T]) -> Request[T]:
    """With a key by which the server recognises the request when it comes again."""
    return replace(request, headers={**request.headers, KEY: str(uuid4())})


def may_repeat(request: Request[Any]) -> bool:
    return request.safe or KEY in request.headers


def encoded(request: Request[Any]) -> bytes | None:
    try:
        return None if request.body is UNSET else orjson.dumps(request.body)
    except TypeError as error:
        raise not_json(error) from None


def not_json(error: TypeError) -> Invalid:
    return Invalid(f"What is to be sent can't be written as JSON: {error}.")


def _retry_after(reply: Reply) -> float:
    """The seconds to wait that the answer asks for, within reason."""
    asked = reply.headers.get("retry-after", "")
    return min(float(asked), LONGEST_ASKED) if asked.isdecimal() else 0.0


def _decoded(reply: Reply, request: Request[Any], url: str) -> Any:
    if request.text and reply.status < 400:
        return reply.body.decode("utf-8", "replace")
    if not reply.body:
        return None
    try:
        return orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        if reply.status >= 400:
            return None
        raise Refused(
            f"The program at {url} is not a control plane: its response is not JSON.", hint="Is the URL right?"
        ) from None


def _no_server(url: str, error: NotSent) -> Unanswered:
    return Unanswered(f"No server answers at {url} ({error}).", hint="Is it running, and the URL right?", sent=False)


def _lost(url: str, error: Lost) -> Unanswered:
    return Unanswered(
        f"The connection to {url} was lost before the response arrived ({error}).",
        hint="The request may have been carried out: look before you repeat it.",
        sent=True,
    )
