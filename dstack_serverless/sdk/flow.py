"""What methods are made of: generators that yield requests, pauses and work, and return an answer.

A flow does nothing by itself. `Client` carries out its steps one after the other, `AsyncClient` awaits them, so each
method is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Unset:
    """The type of `UNSET`: a key that isn't sent, so that the server chooses."""


UNSET: Any = Unset()


@dataclass(frozen=True, slots=True)
class Request(Generic[R_co]):
    """One call of the API. The parameter is the type of its answer."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = UNSET  # as JSON
    file: bytes | None = None  # instead of a body
    file_name: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    safe: bool = False  # it changes nothing
    once: bool = False  # it gets a key, by which the server knows it again
    text: bool = False  # the answer isn't JSON


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one attempt."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send the request once: the flow gets a Reply, or NotSent or Lost."""

    request: Request[Any]
    within: float | None = None  # seconds, if the answer may take less than usual


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Something that blocks: packing files, reading a repository. The flow gets its result."""

    do: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Together:
    """Carry out all these flows, `at_once` at most at a time. The flow gets a list of results and DstackErrors."""

    flows: Sequence[Flow[Any]]
    at_once: int


@dataclass(frozen=True, slots=True)
class Item:
    """A value for the caller, who goes through the values of the flow."""

    value: Any


Flow = Generator[Any, Any, T]
"""Of a method that returns a T."""


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """Of a method that returns an iterator of Ts."""

    flow: Flow[None]


class NotSent(Exception):
    """No connection was made, so nothing has happened."""


class Lost(Exception):
    """The connection was lost, or the answer took too long: the request may have been carried out."""


def segment(text: str) -> str:
    """A part of a path."""
    return quote(text, safe="")


def given(**values: Any) -> dict[str, Any]:
    """Those that are set."""
    return {name: value for name, value in values.items() if value is not UNSET}
