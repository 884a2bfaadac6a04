"""Writes under `/api/v1`: once for each `Idempotency-Key`, and rehearsed with `?dry_run=true`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from pydantic import ConfigDict

from chalicelib.api.encode import encode
from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Answer, Call, Settling
from chalicelib.api.v1 import conditions
from chalicelib.domain.keyed_requests import DIGEST, KEY, SentKey, sent_key
from chalicelib.engine.bootstrap_tokens import keyed
from chalicelib.errors import Ended, Invalid
from chalicelib.usecases.keyed_requests import Act, Acted, Address, once
from chalicelib.usecases.rehearsals import would_write

T = TypeVar("T")
Verb = Literal["create", "change", "stop", "abort", "delete"]

REPEATED = "Idempotency-Replayed"


class Nothing(RequestBody):
    """An empty body."""

    model_config = ConfigDict(extra="forbid")


class WriteQuery(RequestBody):
    """How to write."""

    model_config = ConfigDict(extra="forbid")

    dry_run: bool = False


class ForceQuery(WriteQuery):
    """`force`: hosts that are out of reach aren't waited for."""

    force: bool = False


def write(
    call: Call,
    query: WriteQuery,
    verb: Verb | Callable[[], Verb],
    act: Act[T],
    answer: Callable[[Acted[T]], Answer],
    *,
    by_store: bool = False,
    conditional: bool = False,
    plan: Callable[[str], Any] = lambda action: {"action": action},
) -> Answer:
    """Do it, or say what would be done. `answer` is made after it, and after each repetition. `by_store`: as `once` has
    it. `conditional`: the route has looked at the request's conditions. `plan`: the answer to a rehearsal
    that would do this action."""
    if not conditional:
        conditions.refuse(call)
    found = verb if isinstance(verb, str) else verb()
    if query.dry_run:
        return changed(call, plan(found if would_write(call.plane, act) else "none"))
    acted = act_once(call, act, by_store=by_store, creates=found == "create")
    reply = answer(acted)
    return replace(reply, headers={**reply.headers, **_replayed(acted)})


def creates(current: Callable[[], object | None]) -> Callable[[], Verb]:
    """The verb of a write that creates what isn't there."""
    return lambda: "create" if current() is None else "change"


def act_once(call: Call, act: Act[T], *, by_store: bool = False, creates: bool = False) -> Acted[T]:
    """Act, unless the request repeats one that has: `once` says how."""
    address = Address("" if call.project is None else call.project.id, empty=creates)
    return once(call.plane, call.actor, _sent(call), act, by_store=by_store, address=address)


def _sent(call: Call) -> SentKey | None:
    key = call.headers.get(KEY)
    if key is None:
        return None
    project = "" if call.project is None else call.project.id  # a later project may have its name, and so its paths
    query, secret = urlencode(sorted(call.query.items())), keyed(call.plane.install_key, DIGEST)
    return sent_key(secret, key, project.encode(), call.method.encode(), f"{call.path}?{query}".encode(), call.body)


def _replayed(acted: Acted[Any]) -> dict[str, str]:
    return {REPEATED: "true"} if acted.repeated else {}


def changed(
    call: Call,
    value: Any,
    headers: Mapping[str, str] | None = None,
    *,
    status: int = HTTPStatus.OK,
    settling: Settling | None = None,
) -> Answer:
    """The answer to a write."""
    return Answer(encode(value, call.plane.limits.answer), status=status, headers=headers or {}, settling=settling)


def set_(call: Call, acted: Acted[Any], value: Any) -> Answer:
    """The answer to a PUT: 201 if there was nothing at its address."""
    return changed(call, value, status=HTTPStatus.CREATED if acted.created else HTTPStatus.OK)


def created(call: Call, value: Any, path: str, settling: Settling | None = None) -> Answer:
    """`path`: the resource's."""
    return changed(call, value, {"Location": path}, status=HTTPStatus.CREATED, settling=settling)


def gone(acted: Acted[Any]) -> Answer:
    return Answer(b"", status=HTTPStatus.NO_CONTENT)


def going(acted: Acted[Any]) -> Answer:
    """It takes some time."""
    return Answer(b"", status=HTTPStatus.ACCEPTED)


@contextmanager
def as_sent(**names: str) -> Iterator[None]:
    """Problems have the names of this body's keys, in place of those that the use case has for them."""
    try:
        yield
    except Invalid as refused:
        raise Invalid([replace(each, path=names.get(each.path, each.path)) for each in refused.problems]) from None


def still(found: T | None, noun: str) -> T:
    """What a repeated request made. Raises Ended if it was deleted since."""
    if found is None:
        raise Ended(f"The {noun} that this request made has been deleted.", hint="To make another, send a new key.")
    return found
