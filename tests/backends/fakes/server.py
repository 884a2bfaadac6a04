"""The fake of a provider: its schema decides what a request is, its class what is done, and the script what fails.

A provider's fake is a subclass with its data file, a method for each operation in it (`@answers`), and three things
that schemas don't say: how a request is authenticated, how an error is written, and which problems the provider passes
over. Answers are held to the schema too, so that no fake drifts from its provider.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from chalicelib.domain.instants import Micros
from tests.backends.fakes.books import Books, Resource
from tests.backends.fakes.schema import Api, Problem, values_of
from tests.backends.fakes.script import Answer, Call, Cut, Script

ENOUGH = 20_000  # calls of one test
Why = Literal["no-route", "invalid", "throttled"]
Handler = Callable[[Any, Call], Any]


class Refusal(Exception):
    """An operation's answer that is an error."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, body)
        self.answer = Answer(status, body, headers or {})


class WrongFake(AssertionError):
    """The fake does what its provider doesn't: the fake is wrong, and not who called it."""


class Query(dict[str, Any]):
    """The parameters of a query, of which the fake knows which ones its answer depends on."""

    def __init__(self, given: Mapping[str, Any], known: Iterable[str]) -> None:
        super().__init__(given)
        self.unread = given.keys() & set(known)

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.unread.discard(name)
        return super().get(name, default)


@dataclass(frozen=True)
class Request:
    method: str
    target: str  # path and query, as sent
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""


def answers(*operations: str) -> Callable[[Handler], Handler]:
    def mark(handler: Handler) -> Handler:
        handler.answered = operations  # type: ignore[attr-defined]
        return handler

    return mark


class Fake:
    api: ClassVar[Api]
    _handlers: ClassVar[dict[str, Handler]] = {}

    def __init_subclass__(cls) -> None:
        handlers = [each for base in reversed(cls.__mro__) for each in vars(base).values() if hasattr(each, "answered")]
        cls._handlers = {name: each for each in handlers for name in each.answered}
        if wrong := cls._handlers.keys() ^ cls.api.operations.keys():
            raise TypeError(f"{cls.__name__} has a schema or a method, and not both, for {', '.join(sorted(wrong))}")

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        self.now, self.script, self.books = now, script or Script(), Books(now)
        self.calls: list[Call] = []
        self._lock = threading.RLock()
        self._requests = 0

    # --- what a provider's fake says ---------------------------------------------------------------------------------

    def authenticate(self, request: Request) -> None:
        """Raises a Refusal."""
        raise NotImplementedError

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        """The provider's own error for what is refused before anything is done."""
        raise NotImplementedError

    def tolerates(self, problem: Problem) -> bool:
        """Does the provider pass over it?"""
        return False

    # --- what every fake does ----------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Answer:
        """Raises Cut if there is none."""
        with self._lock:
            self._requests += 1
            if self._requests > ENOUGH:
                raise WrongFake("a test that calls its provider for ever")
            try:
                self.authenticate(request)
                return self._called(self._parsed(request))
            except Refusal as refusal:
                return refusal.answer

    def _parsed(self, request: Request) -> Call:
        url = urlsplit(request.target)
        found = self.api.route(request.method, unquote(url.path))
        if found is None:
            raise self.refused("no-route", f"there is no {request.method} {url.path}")
        operation, path = found
        query = values_of(operation, parse_qsl(url.query, keep_blank_values=True))
        try:
            body = json.loads(request.body) if request.body else None
        except ValueError as error:
            raise self.refused("invalid", f"the body isn't JSON: {error}") from error
        broken = self.api.request_problems(operation, path, query, body)
        if problems := [each for each in broken if not self.tolerates(each)]:
            raise self.refused("invalid", "; ".join(sorted(f"{each.where}: {each.message}" for each in problems)))
        known = (each.name for each in operation.parameters if each.place == "query")
        return Call(operation, path, Query(query, known), request.headers, body, self.now())

    def _called(self, call: Call) -> Answer:
        self.calls.append(call)
        if wait := self.script.wait(call.operation.name, call.at):
            raise self.refused("throttled", "too many requests", wait)
        if fault := self.script.fault(call, "before"):
            return _sent(fault.becomes, Answer())
        body = self._handlers[call.operation.name](self, call)
        made = body if isinstance(body, Answer) else Answer(body=body)
        self._check(call, made)
        fault = self.script.fault(call, "after")
        return _sent(fault.becomes, made) if fault else made

    def _check(self, call: Call, made: Answer) -> None:
        if problems := [*self.api.answer_problems(call.operation, made.status, made.body)]:
            raise WrongFake(f"{call.operation.name} answers what its schema doesn't have: {problems}")
        if isinstance(call.query, Query) and call.query.unread:
            raise WrongFake(f"{call.operation.name} passes over {', '.join(sorted(call.query.unread))}")

    def calls_of(self, operation: str) -> list[Call]:
        return [call for call in self.calls if call.operation.name == operation]

    def page(self, call: Call, items: Iterable[Resource], size: int, token: str) -> tuple[list[Resource], str]:
        """One page, and the token of the next, which is good for the same listing only. `token`: its parameter."""
        filters = {name: value for name, value in call.query.items() if name != token}
        listing = json.dumps([call.operation.name, *call.path.items(), *sorted(filters.items())])
        mark = hashlib.sha256(listing.encode()).hexdigest()[:8]
        last = self._last(str(call.query.get(token, "")), mark)
        size = min(size, self.script.page) if self.script.page else size
        rest = [each for each in items if each.number > last]
        if len(rest) <= size:
            return rest, ""
        further = f"{mark}/{rest[size - 1].number}"
        return rest[:size], base64.urlsafe_b64encode(further.encode()).decode()

    def _last(self, token: str, mark: str) -> int:
        if not token:
            return 0
        try:
            listing, number = base64.urlsafe_b64decode(token).decode().split("/")
            if listing == mark:
                return int(number)
        except ValueError:  # so are wrong base 64 and wrong UTF-8
            pass
        raise self.refused("invalid", "the page token is of another listing")


def _sent(becomes: Any, true: Answer) -> Answer:
    if isinstance(becomes, Answer):
        return becomes
    if becomes is Cut:
        raise Cut
    return Answer(true.status, becomes(true.body), true.headers)
