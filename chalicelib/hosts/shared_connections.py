"""Connections that several share: opened by the first that asks, closed by the last that leaves.

All hosts behind one head node are reached through one login there. One for each would cost the head node and us more
than all that is sent over it, and an SSH server refuses logins if many come at once (`MaxStartups`).
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
    """What one call of `take` gives; one call of `leave` gives it back."""

    def __init__(self, opened: Callable[[], T]) -> None:
        self._opened, self._made, self.users = opened, Future[T](), 0

    def open(self) -> None:
        try:
            self._made.set_result(self._opened())
        except BaseException as problem:
            self._made.set_exception(problem)
            raise

    def wait(self) -> None:
        """Until it is open. Raises what kept it from that."""
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
        """A share of the connection, which is opened now if there is none. All who wait for it hear what went wrong.
        `alone`: of one that nobody else gets."""
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
