"""Requests to the common address of a project's models: authorised here, and then passed on like any other request.

Only members may send them, even to services that need no token: the list of models belongs to the project. Browsers may
call from any page, as with OpenAI's API.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from chalicelib.domain.serving import Served
from chalicelib.serving import cross_origin, models, problems, routing
from chalicelib.serving.body_fields import MOST
from chalicelib.serving.exchange import Exchange
from chalicelib.serving.model_index import ModelIndex
from chalicelib.serving.paced_reading import next_turn

PREFIX = b"/proxy/models/"
_NAMED = re.compile(rb"/proxy/models/([A-Za-z0-9_-]{1,100})(?:/(.*))?", re.DOTALL)
_JSON = [("content-type", "application/json")]

Admit = Callable[[str, Exchange], Awaitable[None]]
PassOn = Callable[[Served, routing.ServicePath, Exchange, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a project's models: the path below their address, as it was sent."""

    project: str
    path: bytes


def by_path(path: bytes) -> ModelRequest | None:
    """The request that a path means; None if it isn't under the address of a project's models."""
    found = _NAMED.fullmatch(path)
    return None if found is None else ModelRequest(found[1].decode(), found[2] or b"")


class ModelRequests:
    """Serves requests to models. `admit` raises HttpProblem for callers who may not use a project; `pass_on` sends a
    request to a service's replica. `draw` returns a random number from [0, 1)."""

    def __init__(
        self, model_index: ModelIndex, admit: Admit, pass_on: PassOn, draw: Callable[[], float] = random.random
    ) -> None:
        self.model_index = model_index
        self._admit, self._pass_on, self._draw = admit, pass_on, draw
        self._makers = models.Makers()

    async def serve(self, request: ModelRequest, exchange: Exchange, query: bytes) -> None:
        """Answer the request. Raises HttpProblem."""
        if cross_origin.is_preflight(exchange):
            await cross_origin.allow(exchange)
            return
        exchange.added = cross_origin.READABLE
        if routing.climbs(b"/" + request.path):
            raise problems.climbing()
        await self._admit(request.project, exchange)
        question = models.read(exchange.method, request.path.decode("latin-1"))
        services = await self.model_index.of(request.project)
        if isinstance(question, models.ModelListing | models.One):
            await exchange.answer(200, _JSON, json.dumps(models.listing(services, question)).encode())
            return
        if isinstance(question, models.Stored):
            service, exchange.only = self._makers.replica(services, request.project, question.id)
        else:
            service = await self._called(services, request.project, question, exchange)
        path = models.target(service, question.path).encode("latin-1")
        prefix = f"/proxy/services/{service.project_name}/{service.run_name}"
        place = routing.ServicePath(service.project_name, service.run_name, prefix.encode() + path, path, prefix)
        await self._pass_on(service.with_(auth=True), place, exchange, query)  # the token was judged here

    async def _called(self, services: list[Served], project: str, call: models.ModelCall, exchange: Exchange) -> Served:
        """The service for a request whose body names the model. No more of the body is read than is needed for that."""
        head = call.head(exchange.header("content-type"))
        over = False
        while not over and len(head.held) < MOST and (part := await exchange.piece()):
            begun, over = time.thread_time(), head.feed(part)
            while head.behind:
                loop = asyncio.get_running_loop()
                await asyncio.sleep(next_turn(loop, time.thread_time() - begun) - loop.time())
                begun, over = time.thread_time(), head.feed(b"")
        name = models.wanted(services, call, head, complete=exchange.complete and len(head.held) < MOST)
        exchange.unread(bytes(head.held))
        candidates = models.serving(services, name)
        if not candidates:
            raise models.nobody(services, name)
        service = models.chosen(candidates, self._draw())
        if call.makes:
            if before := head.found.get("previous_response_id"):
                service, exchange.only = self._makers.replica(candidates, project, before)
            exchange.observers.append(_IdRecorder(self._makers, service))
        return service


class _IdRecorder:
    """Observes a response, and records which replica made it under its id."""

    def __init__(self, makers: models.Makers, service: Served) -> None:
        self._makers, self._service = makers, service
        self._replica, self._beginning, self._found = "", bytearray(), False

    def begins(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._replica = next((value.decode() for name, value in headers if name == b"x-replica"), "")
        self._found = status != 200

    def part(self, data: bytes) -> None:
        if self._found:
            return
        self._beginning += data[: models.FIRST_ID - len(self._beginning)]
        response_id = models.response_id(bytes(self._beginning))
        if response_id:
            maker = models.Maker(self._service.project_name, self._service.run_id, self._replica)
            self._makers.remember(response_id, maker)
        self._found = bool(response_id) or len(self._beginning) >= models.FIRST_ID
