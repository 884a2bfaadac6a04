"""The protocol of a certificate authority, as the engine uses it. Only `runtime` names an implementation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from chalicelib.domain.instants import Micros
from chalicelib.errors import InvalidCredentials


class Unregistered(InvalidCredentials):
    """The authority doesn't know the account (any more)."""


@dataclass(frozen=True)
class AuthorityAccount:
    """An account at an authority; its key is its only credential."""

    key: str = field(repr=False)
    url: str = ""  # empty: it may not be registered yet


@dataclass(frozen=True)
class PlacedOrder:
    """An order at an authority, and the challenge that the host has to answer; without a token: none."""

    url: str
    challenge: str = ""
    token: str = ""
    answer: str = ""


@dataclass(frozen=True)
class OrderState:
    """The state of an order, as RFC 8555 calls it, and the reason if it is invalid."""

    state: str
    error: str = ""


@dataclass(frozen=True)
class SignedCertificate:
    chain: str  # PEM, the host's own certificate first
    since: Micros
    until: Micros


class CertificateAuthority(Protocol):
    """A certificate authority. Each call may be repeated, and raises a BackendError if it fails. Keys are PEM."""

    @property
    def directory(self) -> str:
        """The URL of its directory, which identifies it."""

    def new_key(self) -> str: ...

    def register(self, key: str) -> str:
        """The URL of the account with this key, which is created unless it exists."""

    def order(self, account: AuthorityAccount, host: str, key: str) -> PlacedOrder:
        """Place an order for a certificate with this key."""

    def answer(self, account: AuthorityAccount, order: str) -> OrderState:
        """Have the challenge validated, now that the host answers it."""

    def check(self, account: AuthorityAccount, order: str) -> OrderState:
        """The order's current state."""

    def collect(self, account: AuthorityAccount, order: str, host: str, key: str) -> OrderState | SignedCertificate:
        """Have the certificate signed, or fetch the signed one."""
