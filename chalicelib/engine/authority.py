"""What the engine needs of a certificate authority, as a protocol. Only `runtime` names an implementation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from chalicelib.domain.instants import Micros
from chalicelib.errors import InvalidCredentials


class Unregistered(InvalidCredentials):
    """The authority doesn't know the account (any more)."""


@dataclass(frozen=True)
class Registered:
    """At an authority: whoever has its key is it."""

    key: str = field(repr=False)
    url: str = ""  # empty: it may not be there yet


@dataclass(frozen=True)
class Placed:
    """An order at an authority, and what it wants to see at the host; no token: nothing."""

    url: str
    challenge: str = ""
    token: str = ""
    answer: str = ""


@dataclass(frozen=True)
class OrderState:
    """The state of an order, in the words of RFC 8555, and why it is invalid."""

    state: str
    error: str = ""


@dataclass(frozen=True)
class Signed:
    chain: str  # PEM, the host's own certificate first
    since: Micros
    until: Micros


class Authority(Protocol):
    """A certificate authority. Each call may be repeated, and raises a BackendError if it fails. Keys are PEM."""

    @property
    def directory(self) -> str:
        """Its address, by which it is known."""

    def new_key(self) -> str: ...

    def register(self, key: str) -> str:
        """The address of the account with this key, which is made unless it is there."""

    def order(self, account: Registered, host: str, key: str) -> Placed:
        """A new one, for a certificate with this key."""

    def answer(self, account: Registered, order: str) -> OrderState:
        """The host answers: have it looked at."""

    def look(self, account: Registered, order: str) -> OrderState: ...

    def collect(self, account: Registered, order: str, host: str, key: str) -> OrderState | Signed:
        """Have it signed, or fetch what is signed."""
