"""Shared connections: opened by their first user, closed by their last.

All hosts behind one head node are reached through one login there. A login for each would cost the head node and us
more than all the data sent over it, and SSH servers refuse logins if many come at once (`MaxStartups`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def is_active(self) -> bool: ...
    def close(self) -> None: ...


K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Closable)


class SharedUse(Generic[T]):
    """A use of a shared connection: returned by `take`, ended by `leave`."""

    def __init__(self, opened: Callable[[], T]) -> None:
        self._opened, self._made, self.users = opened, Future[T](), 0

    def open(self) -> None:
        try:
            self._made.set_result(self._opened())
        except BaseException as problem:
            self._made.set_exception(problem)
            raise

    def wait(self) -> None:
        """Wait until it is open. Raises the error if that fails."""
        self._made.result()

    @property
    def it(self) -> T:
        return self._made.result()

    @property
    def broken(self) -> bool:
        return self._made.done() and not (self._made.exception() is None and self.it.is_active())

    def close(self) -> None:
        if self._made.exception() is None:
            self.it.close()


class Shared(Generic[K, T]):
    def __init__(self, opened: Callable[[K], T]) -> None:
        self._opened, self._lock = opened, threading.Lock()
        self._shares: dict[K, SharedUse[T]] = {}

    def take(self, key: K, *, alone: bool = False) -> SharedUse[T]:
        """Use the connection, which is opened now if there is none. An error is raised to all who wait for it. `alone`:
        use a new connection that isn't shared."""
        with self._lock:
            share = self._shares.get(key)
            opens = alone or share is None or share.broken
            if share is None or opens:
                share = SharedUse(lambda: self._opened(key))
            if not alone:
                self._shares[key] = share
            share.users += 1
        try:
            share.open() if opens else share.wait()
        except BaseException:
            self.leave(share)
            raise
        return share

    def leave(self, share: SharedUse[T]) -> None:
        with self._lock:
            share.users -= 1
            if share.users:
                return
            self._shares = {key: other for key, other in self._shares.items() if other is not share}
        share.close()
