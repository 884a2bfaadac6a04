"""Which accounts a server watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.accounts import Account
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.spi import Backend, MachineChange, facts_of
from chalicelib.errors import InvalidCredentials
from chalicelib.runtime.machine_watches import MachineWatches


class Watched(FakeCloud):
    changed: Callable[[Sequence[MachineChange]], None] | None = None

    def watch(self, changed: Callable[[Sequence[MachineChange]], None], install: str) -> Callable[[], None]:
        assert install == "us"
        self.changed = changed

        def end() -> None:
            self.changed = None

        return end


def clock() -> int:
    return 0


def test_the_accounts_of_now_are_watched_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    first, second, plain = Watched(clock), Watched(clock), FakeCloud(clock)
    works = False

    def make() -> Backend:
        if not works:
            raise InvalidCredentials("not yet")
        return second

    accounts = [Account.of(first, "P"), Account.of(plain, "Q"), Account(facts_of(Watched), make, "R")]
    heard: list[MachineChange] = []

    def take(changes: Sequence[MachineChange]) -> None:
        heard.extend(changes)
        if changes[0].gone:
            raise LookupError("whatever it is")

    watches = MachineWatches(lambda: accounts, take, "us")
    watches.update()
    assert first.changed is not None and second.changed is None, "one that can't be used yet is tried again"
    works = True
    watches.update()
    assert second.changed is not None
    second.changed([MachineChange("a")])
    second.changed([MachineChange("b", gone=True)])  # nothing that fails here ends a watch
    assert heard == [MachineChange("a"), MachineChange("b", gone=True)] and "found out later" in caplog.text
    del accounts[0]
    watches.update()
    assert first.changed is None and second.changed is not None
    watches.stop()
    watches.update()
    assert second.changed is None
