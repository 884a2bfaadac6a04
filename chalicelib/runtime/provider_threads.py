"""Work on accounts in the embedded server, on a few threads that are shared fairly among accounts and projects. The
counterpart of `provider_functions.py` in AWS."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from chalicelib.domain.backends import type_and_project
from chalicelib.domain.instants import SECOND
from chalicelib.engine.ports import PLAN_WAITS, ConfigurationCheck
from chalicelib.runtime.effect_pools import FairPool
from chalicelib.runtime.provider_functions import PATIENCE, unanswered

if TYPE_CHECKING:
    from chalicelib.domain.market_answers import MarketAnswer
    from chalicelib.domain.offer_requests import OfferRequest
    from chalicelib.runtime.root import Root

log = logging.getLogger(__name__)

THREADS = 16

T = TypeVar("T")


@dataclass(frozen=True)
class _AccountTask:
    """A sweep, refresh or check. An account's tasks run one at a time; of two equal ones that wait, one is dropped."""

    unit: str  # the account, or one task on it that needn't wait for the others
    project_id: str
    what: str
    do: Callable[[], object] = field(compare=False)


class ProviderThreads:
    """`AccountWork` by threads. Before `start`, callers do the work themselves."""

    def __init__(
        self,
        root: Callable[[], Root],
        *,
        threads: int = THREADS,
        patience: float = PATIENCE,
        plan_waits: float = PLAN_WAITS / SECOND,
    ) -> None:
        self._root, self._patience, self._plan_waits = root, patience, plan_waits
        self._pool: FairPool[_AccountTask] = FairPool(threads, Daemons())

    def start(self) -> None:
        self._pool.start(lambda task: task.do())

    def stop(self) -> None:
        """Begin no more tasks. Tasks that wait for a provider aren't waited for."""
        self._pool.stop()

    def sweep(self, account: str) -> None:
        self._submit(account, "sweep", lambda: self._root().sweep(account))

    def refresh(self, account: str) -> None:
        self._submit(account, "refresh", lambda: self._root().refresh(account))

    def check(self, request: ConfigurationCheck) -> None:
        # The caller needn't wait for the account's sweeps, and the configuration is a different one.
        done = self._awaited(request.account, "check", lambda: self._root().check(request))
        wait([done], self._patience)
        if done.cancel() or not done.done():
            raise unanswered(request.type)
        done.result()

    def offers(self, asks: Sequence[tuple[str, OfferRequest]]) -> Sequence[MarketAnswer | None]:
        done = [self._answer(account, request) for account, request in asks]
        wait(done, self._plan_waits)
        return [None if each.cancel() or not each.done() else each.result() for each in done]

    def _answer(self, account: str, request: OfferRequest) -> Future[MarketAnswer | None]:
        def ask() -> MarketAnswer | None:
            try:
                return self._root().offers_for(account, request)
            except Exception:  # whatever it is: the plan goes on without it
                log.exception("%s couldn't be asked for a plan", account)
                return None

        return self._awaited(account, "offers", ask)

    def _awaited(self, account: str, what: str, work: Callable[[], T]) -> Future[T]:
        """The result of a task that waits for no other of its account. It isn't begun once it is cancelled, because
        its caller has left."""
        done: Future[T] = Future()

        def do() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except Exception as error:  # raised to the caller, who waits
                done.set_exception(error)

        self._submit(account, what, do, unit=f"{account}/{what}-{id(done)}")
        return done

    def busy(self, account: str) -> bool:
        """Whether there is work on it, under way or waiting."""
        return self._pool.busy(account)

    def settle(self, patience: float) -> bool:
        """Wait up to this many seconds until all work is done. Returns whether it is."""
        return self._pool.settle(patience)

    def _submit(self, account: str, what: str, do: Callable[[], object], unit: str = "") -> None:
        task = _AccountTask(unit or account, type_and_project(account)[1], what, do)
        if self._pool.started:
            self._pool.submit(task)
        else:
            task.do()


class Daemons:
    """A daemon thread for each call, so that the process can end while some of them wait for a provider."""

    def submit(self, work: Callable[..., object], *args: Any) -> None:
        threading.Thread(target=work, args=args, name="provider", daemon=True).start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: the threads end by themselves."""
