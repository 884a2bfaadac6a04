"""`AsyncClient`, in a file of its own: programs without asyncio needn't import that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self, TypeVar

import httpx

from chalicelib.errors import DstackError
from dstack_serverless.sdk.client import Nouns, arguments_of, reply_of, translation_of
from dstack_serverless.sdk.flow import Exchange, Flow, Item, Pause, Request, Together, Work
from dstack_serverless.sdk.resource import Async

T = TypeVar("T")


class AsyncClient(Nouns[Async]):
    """Calls a control plane from asyncio."""

    sleep: Callable[[float], Awaitable[None]] = staticmethod(asyncio.sleep)

    def _open(self, settings: dict[str, Any]) -> None:
        self._http = httpx.AsyncClient(**settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, request: Request[T]) -> T:
        """The answer to a call that a function of `dstack_serverless.api` describes."""
        answer: T = await self.run_flow(self.core.ask(request))
        return answer

    async def run_flow(self, flow: Flow[Any]) -> Any:
        send, value = flow.send, None
        while True:
            try:
                step = send(value)
            except StopIteration as end:
                return end.value
            send, value = await self._done(flow, step)

    async def iterate(self, flow: Flow[None]) -> AsyncIterator[Any]:
        send, value = flow.send, None
        while True:
            try:
                step = send(value)
            except StopIteration:
                return
            if isinstance(step, Item):
                yield step.value
                send, value = flow.send, None
            else:
                send, value = await self._done(flow, step)

    async def _done(self, flow: Flow[Any], step: Any) -> tuple[Callable[[Any], Any], Any]:
        try:
            return flow.send, await self._do(step)
        except Exception as error:  # noqa: BLE001 - as above
            return flow.throw, error

    async def _do(self, step: Any) -> Any:
        if isinstance(step, Exchange):
            try:
                return reply_of(await self._http.request(**arguments_of(step, self._http.timeout)))
            except httpx.RequestError as error:
                raise translation_of(error) from error
        if isinstance(step, Pause):
            return await self.sleep(step.seconds)
        if isinstance(step, Together):
            turns = asyncio.Semaphore(step.at_once)
            return await asyncio.gather(*(self._result(flow, turns) for flow in step.flows))
        assert isinstance(step, Work), step
        return await asyncio.to_thread(step.do)

    async def _result(self, flow: Flow[Any], turns: asyncio.Semaphore) -> Any:
        async with turns:
            try:
                return await self.run_flow(flow)
            except DstackError as error:
                return error
