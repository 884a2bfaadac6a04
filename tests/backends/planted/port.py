"""The wrapper: a backend's port, passed on as it is but for what a fault gets wrong."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from chalicelib.backends.spi import (
    Backend,
    CreateRequest,
    CreateResult,
    CreatesSeveral,
    DescribesSeveral,
    GatewayContainers,
    LiveOffers,
    PlacementGroups,
    Volumes,
    Watches,
)
from chalicelib.domain.instances import Handle
from tests.backends.conformance.requests import created

PROTOCOLS = (
    Backend,
    CreatesSeveral,
    DescribesSeveral,
    GatewayContainers,
    LiveOffers,
    PlacementGroups,
    Volumes,
    Watches,
)
PORT = sorted(
    {name for each in PROTOCOLS for name in (*vars(each), *inspect.get_annotations(each)) if not name.startswith("_")}
)


@dataclass(frozen=True)
class Case:
    """A case of the conformance suite, with what it is called with beside its fixtures."""

    name: str
    given: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *(str(each) for each in self.given.values() if isinstance(each, str | int))])


class PortFault:
    """A backend whose port is `inner`'s. A fault overrides the members that it gets wrong, or `passed_on`."""

    cases: tuple[Case, ...] = ()

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def passed_on(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)


FAULTS: list[type[PortFault]] = []
Kind = TypeVar("Kind", bound=type[PortFault])
CaseName = str | Case


def noticed_by(*cases: CaseName) -> Callable[[Kind], Kind]:
    """Plants the fault: these cases must fail with it."""

    def plant(fault: Kind) -> Kind:
        fault.cases = tuple(case if isinstance(case, Case) else Case(case) for case in cases)
        FAULTS.append(fault)
        return fault

    return plant


def case(name: str, **given: Any) -> Case:
    return Case(name, given)


def planted(fault: type[PortFault], inner: Any) -> Any:
    """`inner` with this fault. It has the members that `inner` has, so that it grants the same capabilities."""
    members: dict[str, Any] = {
        name: _passed_on(name) for name in PORT if hasattr(inner, name) and not hasattr(fault, name)
    }
    if "offers_for" in members and hasattr(fault, "answer"):
        members["offers_for"] = fault.answer
    if "create_gateway" in members and hasattr(fault, "gateway"):
        members["create_gateway"] = fault.gateway
    if "watch" in members and hasattr(fault, "watching"):
        members["watch"] = fault.watching
    return type(fault.__name__, (fault,), members)(inner)


def _passed_on(name: str) -> property:
    return property(lambda wrapper: wrapper.passed_on(name))


# --- what many faults do ---------------------------------------------------------------------------------------------


class OtherRequest(PortFault):
    """Buys something else than was requested, one machine or several."""

    def changed(self, request: CreateRequest) -> CreateRequest:
        raise NotImplementedError

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return created(self.inner, self.changed(request))

    def gateway(self, request: CreateRequest) -> Iterator[Handle]:
        return created(self.inner, self.changed(request))

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        changed = [self.changed(request) for request in requests]
        tokens = {other.token: request.token for other, request in zip(changed, requests, strict=True)}
        for made in self.inner.create_several(changed):
            yield replace(made, token=tokens[made.token])


def other_request(*cases: CaseName) -> Callable[[Callable[[CreateRequest], CreateRequest]], type[OtherRequest]]:
    """The fault that buys what this function makes of a request."""

    def plant(change: Callable[[CreateRequest], CreateRequest]) -> type[OtherRequest]:
        members = {"changed": lambda self, request: change(request), "__doc__": change.__doc__}
        name = change.__name__.title().replace("_", "")
        return noticed_by(*cases)(type(name, (OtherRequest,), members))

    return plant


def settings_of(request: CreateRequest) -> str:
    """What starts the agent, with its token: the boot script, or a container's environment."""
    return request.user_data if request.container is None else str(dict(request.container.env))


def forgotten(request: Any) -> Any:
    """The request under a token and a name that nobody has used before."""
    return replace(request, token=uuid.uuid4().hex, name=f"{request.name[:28]}{uuid.uuid4().hex}")
