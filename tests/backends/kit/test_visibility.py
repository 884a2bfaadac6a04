"""What was created and may not be listed yet."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.visibility import CREATED, Lag, adopted, if_there
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND, iso
from chalicelib.errors import Gone, Transient
from tests.backends.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lag(clock: Clock) -> Lag:
    return Lag("Nimbus", 10 * SECOND, clock.now)


def made(name: str, clock: Clock) -> Handle:
    return Handle(kind="vm", id=name, data={CREATED: iso(clock.now())})


def test_nothing_new_is_gone(lag: Lag, clock: Clock) -> None:
    old, new = made("old", clock), made("new", clock)
    with pytest.raises(Transient, match="Nimbus doesn't show old yet"):
        lag.gone("machine", [old])
    clock.passes(11)
    new = made("new", clock)
    with pytest.raises(Transient, match="new"):
        lag.gone("machine", [old, new])
    assert lag.is_fresh(new) and not lag.is_fresh(old)
    clock.passes(11)
    assert str(lag.gone("machine", [old, new])) == "Nimbus has no machine old or new."
    assert str(lag.gone("machine", [])) == "Nimbus has no machine for this."


def test_what_is_as_old_as_the_lag_shows(lag: Lag, clock: Clock) -> None:
    created = clock.now()
    clock.passes(9)
    assert lag.is_within(created)
    clock.passes(1)
    assert not lag.is_within(created)


def test_what_a_list_lacks_is_looked_up_once_it_should_show(lag: Lag, clock: Clock) -> None:
    handles, found = [made("one", clock), made("two", clock)], {"two": "its body"}
    assert lag.first_shown(handles, {"two": "listed"}, lambda _: None) == (handles[1], "listed")
    with pytest.raises(Transient):
        lag.first_shown(handles, {}, lambda handle: found.get(handle.id))
    clock.passes(11)
    assert lag.first_shown(handles, {}, lambda handle: found.get(handle.id)) == (handles[1], "its body")
    assert lag.first_shown(handles, {}, lambda _: None) is None


def test_the_first_is_adopted_and_others_end(clock: Clock) -> None:
    known, ended = [made(name, clock) for name in ("one", "two", "three")], []

    def end(handle: Handle) -> None:
        ended.append(handle.id)
        raise Gone("somebody else was faster")

    found = adopted(known, end)
    assert next(found) == known[0] and not ended
    assert list(found) == [] and ended == ["two", "three"]


def test_what_is_gone_is_none() -> None:
    def fails(error: Exception) -> str:
        raise error

    assert if_there(lambda: "there") == "there"
    assert if_there(lambda: fails(Gone("no such machine"))) is None
    with pytest.raises(Transient):
        if_there(lambda: fails(Transient("no answer")))
