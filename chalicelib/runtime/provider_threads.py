"""Work on accounts in the embedded server: a few threads, among which no account and no project is kept waiting by
another. What `provider_functions.py` is in AWS."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chalicelib.domain.backends import type_and_project
from chalicelib.engine.ports import ConfigurationCheck
from chalicelib.runtime.effect_pools import FairPool
from chalicelib.runtime.provider_functions import PATIENCE, unanswered

if TYPE_CHECKING:
    from chalicelib.runtime.root import Root

THREADS = 16


@dataclass(frozen=True)
class _AccountTask:
    """A sweep, refresh or check. Those of an account run one at a time; of two equal ones that wait, one is enough."""

    unit: str  # the account
    what: str
    do: Callable[[], object] = field(compare=False)

    @property
    def project_id(self) -> str:
        return type_and_project(self.unit)[1]


class ProviderThreads:
    """`AccountWork`. Before the start, whoever asks does the work."""

    def __init__(self, root: Callable[[], Root], *, threads: int = THREADS, patience: float = PATIENCE) -> None:
        self._root, self._patience = root, patience
        self._pool: FairPool[_AccountTask] = FairPool(threads, Daemons())

    def start(self) -> None:
        self._pool.start(lambda task: task.do())

    def stop(self) -> None:
        """Nothing more begins. What a provider keeps waiting isn't waited for."""
        self._pool.stop()

    def sweep(self, account: str) -> None:
        self._submit(_AccountTask(account, "sweep", lambda: self._root().sweep(account)))

    def refresh(self, account: str) -> None:
        self._submit(_AccountTask(account, "refresh", lambda: self._root().refresh(account)))

    def check(self, asked: ConfigurationCheck) -> None:
        done: Future[None] = Future()

        def do() -> None:
            try:
                self._root().check(asked)
                done.set_result(None)
            except Exception as error:  # whatever it is: for who waits
                done.set_exception(error)

        # Not in turn with the account's sweeps: somebody waits, and it is another configuration that is asked about.
        self._submit(_AccountTask(f"{asked.account}/check-{id(done)}", "check", do))
        wait([done], self._patience)
        if not done.done():
            raise unanswered(asked.type)
        done.result()

    def busy(self, account: str) -> bool:
        """Is there any work on it, under way or waiting?"""
        return self._pool.busy(account)

    def settle(self, patience: float) -> bool:
        """Wait up to this many seconds until nothing is under way or waiting; returns whether that came."""
        return self._pool.settle(patience)

    def _submit(self, task: _AccountTask) -> None:
        if self._pool.started:
            self._pool.submit(task)
        else:
            task.do()


class Daemons:
    """A thread for each call. The process may end while a provider keeps some of them waiting."""

    def submit(self, work: Callable[..., object], *given: Any) -> None:
        threading.Thread(target=work, args=given, name="provider", daemon=True).start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """They end by themselves."""
