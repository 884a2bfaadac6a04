"""How a flow becomes a method of both clients, with the types of each.

A noun is one class, `Runs[Sync]` in `Client` and `Runs[Async]` in `AsyncClient`. A method that is declared with
`method` returns its answer there and an awaitable here; one declared with `iterated`, an iterator or an asynchronous
one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from dstack_serverless.sdk.core import Core
from dstack_serverless.sdk.flow import Flow, Items

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Mode = TypeVar("Mode")


class Sync:
    """The mode of `Client`."""


class Async:
    """The mode of `AsyncClient`."""


class Runner(Protocol):
    """A client: it carries out flows, each in its way."""

    core: Core

    def run_flow(self, flow: Flow[Any]) -> Any: ...

    def iterate(self, flow: Flow[None]) -> Any: ...


class Resource(Generic[Mode]):
    """The methods of a noun."""

    def __init__(self, client: Runner) -> None:
        self.client = client

    @property
    def core(self) -> Core:
        return self.client.core


class method(Generic[P, R]):
    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[R]]) -> None:
        self.flow, self.__doc__ = flow, flow.__doc__

    @overload
    def __get__(self, owner: Resource[Sync], kind: Any = None) -> Callable[P, R]: ...
    @overload
    def __get__(self, owner: Resource[Async], kind: Any = None) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, owner: None, kind: Any = None) -> method[P, R]: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        client, flow = owner.client, self.flow

        @wraps(flow)
        def bound(*args: Any, **named: Any) -> Any:
            return client.run_flow(flow(owner, *args, **named))

        return bound


class iterated(Generic[P, T]):
    def __init__(self, flow: Callable[Concatenate[Any, P], Items[T]]) -> None:
        self.flow, self.__doc__ = flow, flow.__doc__

    @overload
    def __get__(self, owner: Resource[Sync], kind: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, owner: Resource[Async], kind: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, owner: None, kind: Any = None) -> iterated[P, T]: ...
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        client, flow = owner.client, self.flow

        @wraps(flow)
        def bound(*args: Any, **named: Any) -> Any:
            return client.iterate(flow(owner, *args, **named).flow)

        return bound
