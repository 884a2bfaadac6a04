"""Accounts: each project has its own backends, with their own credentials and settings.

An *account* is one backend of one project. Some accounts serve every project, as the simulated cloud's does. An
account's machines, offers and errors are invisible to other projects. Work for a project uses only its own accounts;
only the sweep and the catalog's refresh go through all of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from chalicelib.backends.spi import Backend, CreateRequest, GroupRequest, Machine, Owned, OwnedGroup, facts_of
from chalicelib.domain.backends import account_key
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import DstackError, InvalidCredentials, Refused

log = logging.getLogger(__name__)


class Account:
    """One backend with its credentials and settings.

    Its facts are available at once. The backend is created on first use, because that may need an SDK. If that fails,
    the call raises the reason, and the next call tries again.
    """

    def __init__(
        self,
        facts: BackendFacts,
        make: Callable[[], Backend],
        project_id: str | None = None,
        regions: Sequence[str] = (),
    ) -> None:
        self.facts, self.project_id = facts, project_id  # None: serves every project
        self.regions = tuple(regions)  # the regions in its settings; empty: all
        self.key = account_key(facts.name, project_id)
        self._make, self._lock = make, threading.Lock()
        self._made: Backend | None = None

    @classmethod
    def of(cls, backend: Backend, project_id: str | None = None) -> Account:
        """An account for an existing backend."""
        return cls(facts_of(backend), lambda: backend, project_id)

    @property
    def backend(self) -> Backend:
        with self._lock:
            if self._made is None:
                try:
                    self._made = self._make()
                except DstackError as error:
                    return UnusableBackend(self.facts, str(error))
            return self._made

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


class Accounts:
    """Every configured account. A project has at most one of each type."""

    def __init__(self, accounts: Iterable[Account] = ()) -> None:
        self._all = tuple(sorted(accounts, key=lambda account: account.key))
        self._shared = tuple(account for account in self._all if account.project_id is None)
        self._of: dict[str, tuple[Account, ...]] = {}
        for account in self._all:
            if account.project_id is not None:
                self._of[account.project_id] = (*self._of.get(account.project_id, self._shared), account)
        for project_id, found in [("", self._shared), *self._of.items()]:
            _check_names(project_id, found)

    def of(self, project_id: str, type: str, *, now: bool = False) -> Backend:
        """The project's backend of that type. If it isn't configured (any more), each of its calls raises that."""
        for account in self.accounts(project_id):
            if account.facts.name == type:
                return account.backend
        log.error("project %s uses the backend %s, which isn't configured", project_id, type)
        return UnusableBackend(BackendFacts(name=type), f"The backend {type} isn't configured.", "Configure it again.")

    def facts(self, project_id: str) -> Mapping[str, BackendFacts]:
        """What each of the project's backends can do, by type. Needs no SDK and no credentials."""
        return {account.facts.name: account.facts for account in self.accounts(project_id)}

    def accounts(self, project_id: str | None = None) -> Sequence[Account]:
        """All accounts, or those that serve one project."""
        return self._all if project_id is None else self._of.get(project_id, self._shared)

    def account(self, key: str) -> Account | None:
        return next((account for account in self._all if account.key == key), None)

    def held(self) -> AbstractContextManager[object]:
        """These never change."""
        return nullcontext()

    def invalidate(self, *accounts: str) -> None:
        """There is nothing newer."""

    def close(self) -> None:
        for account in self._all:
            account.close()


class UnusableBackend:
    """Stands in for an unusable backend that still has instances. Every call raises the reason, and the engine repeats
    it until that is fixed."""

    def __init__(self, facts: BackendFacts, why: str, hint: str = "") -> None:
        self.facts, self._why, self._hint = facts, why, hint

    def _refuse(self) -> InvalidCredentials:
        return InvalidCredentials(self._why, hint=self._hint)

    def check(self) -> None:
        raise self._refuse()

    def offers(self) -> Sequence[Offer]:
        raise self._refuse()

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        raise self._refuse()

    def describe(self, handles: Sequence[Handle]) -> Machine:
        raise self._refuse()

    def terminate(self, handle: Handle) -> None:
        raise self._refuse()

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        raise self._refuse()

    def create_group(self, request: GroupRequest) -> Handle:
        raise self._refuse()

    def delete_group(self, handle: Handle) -> None:
        raise self._refuse()

    def list_owned_groups(self) -> Iterator[OwnedGroup]:
        raise self._refuse()

    def close(self) -> None:
        """There is nothing to close."""


def _check_names(project_id: str, accounts: Sequence[Account]) -> None:
    """Refuses two accounts with the same name, because their machines would be indistinguishable."""
    titles: dict[str, str] = {}
    for facts in (account.facts for account in accounts):
        title = facts.title or facts.name
        if facts.name in titles:
            both = f"{titles[facts.name]} and {title}"
            whose = f"project {project_id}" if project_id else "every project"
            raise Refused(
                f"Two backends of {whose} have the name `{facts.name}`: {both}.", hint="Configure only one of them."
            )
        titles[facts.name] = title
