"""The provider's side of the suite: what a test arranges there, and what it reads past the backend.

Its answers are the truth, whatever the provider's own listings show at the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from chalicelib.backends.spi import Backend, Container
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer

LetPass = Callable[[float], None]
Fails = Literal["InvalidCredentials", "MissingPermission", "Throttled", "Transient"]
Call = Literal["check", "offers", "create", "describe", "terminate", "list"]


class Provider(Protocol):
    @property
    def secrets(self) -> Sequence[str]:
        """What the backend was given and must not show."""

    def existing(self) -> set[str]:
        """The ids of everything of ours that costs money, or that nobody may leave behind."""

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        """The next calls end so: before anything is done, or after all is and only the answer is lost."""

    def page_fails(self) -> None:
        """The next page of the listing of machines that isn't its first, if listings have pages."""

    def region_down(self, region: str) -> None: ...

    def invisible_for(self, seconds: float) -> None:
        """How long what is created from now on stays out of listings and descriptions."""

    def pages_of(self, size: int) -> None:
        """Listings come in pages of so many."""

    def none_left(self, offer: Offer) -> None:
        """No machine of the type is left in the region."""

    def zone_is_full(self, offer: Offer, zone: str, *, full: bool = True) -> None:
        """No machine of the type is left in this zone, where zones can be full by themselves."""

    def quota(self, offer: Offer, machines: int) -> None:
        """The account may have so many."""

    def falls_short(self, offer: Offer) -> None:
        """The next machine of the type is created like any other, and then there is no room for it."""

    def lost(self, handles: Sequence[Handle]) -> None:
        """The machine is gone, and nobody knows why."""

    def reclaim(self, handles: Sequence[Handle]) -> None:
        """Notice is given to a spot machine."""

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        """Creates what isn't ours: with no tags, with tags that can't be read, and another installation's, complete."""

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        """Reserves so many of its machines, in one of its zones; the id."""

    def in_reservation(self, reservation: str) -> int:
        """How many machines use it now."""

    def price(self, offer: Offer) -> float:
        """By the provider's own list."""

    def user_data(self, handles: Sequence[Handle]) -> str:
        """As the machine gets it."""

    def container(self, handles: Sequence[Handle]) -> Container:
        """As it was created, where containers are sold."""

    def container_ends(self, handles: Sequence[Handle], how: Literal["image", "exits"]) -> None:
        """Its image can't be pulled, or its first process exits."""

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        """Those of the machine that the whole world reaches; -1 stands for all of them."""

    def disk_gib(self, handles: Sequence[Handle]) -> float: ...

    def tags(self, handle: Handle) -> dict[str, str]: ...


class GatewayProvider(Provider, Protocol):
    """Of a provider whose containers can have addresses that the world reaches."""

    def addresses(self, *, takes: float = 0.0, released_after: float = 0.0, fail: str | bool = False) -> None:
        """How many seconds it takes to get one and to take it back; whether nobody gets one, and what is said of it."""
