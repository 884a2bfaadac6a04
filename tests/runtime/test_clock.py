"""Time that only goes forward, whatever the machine's clock does."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.instants import DAY, HOUR, SECOND, Micros
from chalicelib.domain.tenants import GlobalRole, User
from chalicelib.runtime.clock import SystemClock
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store import nouns
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.operator.events import EventFilter, list_events

START = 1_800_000_000 * SECOND


@dataclass
class Machine:
    at: Micros = START
    up: Micros = 0

    def clock(self, after: Micros = 0) -> SystemClock:
        return SystemClock(lambda: self.at * 1000, lambda: self.up * 1000, after)

    def wait(self, micros: Micros) -> None:
        self.at += micros
        self.up += micros


def test_it_is_the_machines_time() -> None:
    machine = Machine()
    clock = machine.clock()
    for pause in (1, SECOND, HOUR):
        machine.wait(pause)
        assert clock.now() == machine.at
    machine.at += DAY  # set forward
    assert clock.now() == machine.at


def test_no_moment_comes_twice() -> None:
    clock = Machine().clock()
    assert [clock.now() for _ in range(3)] == [START, START + 1, START + 2]


def test_set_back_it_goes_on_at_half_its_pace_until_the_machine_has_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.now() == START
    machine.at -= HOUR
    with caplog.at_level(logging.WARNING):
        times = []
        for _ in range(12):
            machine.wait(10 * 60 * SECOND)
            times.append((clock.now() - START) // SECOND)
    assert times == [*(300 * n for n in range(1, 12)), 3600], "deadlines still come"
    assert len(caplog.records) == 1 and "is 3000 s behind" in caplog.text
    machine.wait(SECOND)
    assert clock.now() == machine.at


@pytest.mark.parametrize(("ahead", "waits"), [(-HOUR, False), (SECOND, True), (DAY, True), (DAY + SECOND, False)])
def test_a_server_goes_on_after_its_last_event_unless_that_is_of_another_age(ahead: Micros, waits: bool) -> None:
    machine = Machine()
    clock = machine.clock(after=START + ahead)
    assert (clock.now() == START + ahead + 1) is waits
    assert (clock.now() > START) and (waits or clock.now() < START + SECOND)


@pytest.mark.slow
def test_events_keep_their_order_though_the_machines_clock_was_set_back_between_two_starts(tmp_path: Path) -> None:
    ids: list[str] = []
    admin = User(id="a", name="admin", role=GlobalRole.admin, token_hash="", created_at=0)
    for ahead in (HOUR, 0):
        server = EmbeddedRoot(ServerSettings(data_dir=tmp_path), ServerConfig(projects=()), "http://plane")
        for _ in range(3):
            at, seed = server.plane.clock.now() + ahead, str(len(ids))
            event = audit_event(EventType.created, at, user_target(admin), project_id=EVERYWHERE, seed=seed)
            server.plane.store.commit([nouns.put(event)])
            ids.append(event.id)
        listed = list_events(server.plane.store, admin, {}, EventFilter(ascending=True))
        server.close()
        assert [event.id for event in listed] == ids
