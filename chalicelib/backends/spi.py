"""What a backend is: eight members, no waiting, errors from one vocabulary.

The contract, which `tests/backends/conformance.py` checks for every one:

* `create` yields a handle after every external resource it creates, before it creates the next: what is yielded is
never
  lost. Called again with the same request it adopts what exists and yields the same handles. No single step takes
  longer than half of `facts.create_timeout`.
* `terminate` accepts any handle ever yielded, in any state, any number of times. It returns once termination has been
  requested, and raises Gone when nothing is left. Only Gone is proof.
* `describe` raises Gone too. A resource may be missing from it for `facts.visibility_lag` after `create`.
* `list_owned` is complete, or it raises: what it doesn't show counts as gone, after `facts.visibility_lag`.
* No call sleeps or polls; the engine calls again.
* Every failure is raised as one of the BackendErrors; a provider's own exception never leaves its package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer


@dataclass(frozen=True)
class CreateRequest:
    """All a backend needs to make one machine; two equal requests make one machine."""

    token: str  # idempotency token: install/project/instance/epoch, hashed
    name: str  # what a person sees in the provider's console
    tags: tuple[tuple[str, str], ...]  # owner tags: install, project, instance, epoch
    offer: Offer
    instance_id: str
    user_data: str  # starts the agent with its single-use bootstrap token; byte-identical when repeated
    disk_mib: int
    zones: tuple[str, ...] | None = None
    reservation: str | None = None


@dataclass(frozen=True)
class Machine:
    """What the provider says of a created machine."""

    state: Literal["pending", "running"]
    hostname: str = ""
    internal_ip: str = ""
    interrupted: bool = False  # the provider announced it takes a spot machine back


@dataclass(frozen=True)
class Owned:
    """A resource at the provider that bears our owner tag; how orphans are found."""

    handle: Handle
    install: str
    project_id: str
    instance_id: str
    epoch: int


class Backend(Protocol):
    facts: BackendFacts

    def check(self) -> None:
        """Do the credentials work? Raises InvalidCredentials or MissingPermission."""

    def offers(self) -> Sequence[Offer]:
        """Everything that could be bought, priced. Asked by the catalog refresh only, never by a plan."""

    def create(self, request: CreateRequest) -> Iterator[Handle]: ...

    def describe(self, handles: Sequence[Handle]) -> Machine: ...

    def terminate(self, handle: Handle) -> None: ...

    def list_owned(self, instance_id: str | None = None) -> Iterator[Owned]:
        """What bears our owner tag; with `instance_id`, that instance's only (a provider that can filter, filters)."""

    def close(self) -> None: ...
