"""The rows of an hour add up to what the machines cost; what nobody had was idle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.billing import ledger
from chalicelib.billing.ledger import IDLE, Amount, Holding, Spent, spent
from chalicelib.domain.costs import MOST_ROWS, OTHERS
from chalicelib.domain.instants import DAY, HOUR, MINUTE

DAY_ONE = 20_000 * DAY


def machine(start: int, end: int | None = None, *, id: str = "m", price: float = 2.0, fleet: str = "pool") -> Holding:
    return Holding(id, DAY_ONE + start, None if end is None else DAY_ONE + end, price, 8, "H100", fleet)


def share(start: int, end: int | None, user: str = "ann", *, id: str = "m", price: float = 1.0) -> Holding:
    return Holding(id, DAY_ONE + start, None if end is None else DAY_ONE + end, price, 4, "H100", "pool", user)


def rows(*held: Holding, now: int = 10 * HOUR) -> list[tuple[int, str, float, float]]:
    found = spent(held, DAY_ONE, DAY_ONE + DAY, DAY_ONE + now)
    return [((row.at - DAY_ONE) // HOUR, row.user, row.dollars, row.gpu_hours) for row in found]


def test_a_machine_that_nobody_has_is_idle() -> None:
    assert rows(machine(30 * MINUTE, 90 * MINUTE)) == [(0, IDLE, 1.0, 4.0), (1, IDLE, 1.0, 4.0)]


def test_a_share_is_its_users_and_the_rest_is_idle() -> None:
    found = rows(machine(0, HOUR), share(0, 30 * MINUTE), share(0, HOUR, "bob"))
    assert found == [(0, IDLE, 0.5, 2.0), (0, "ann", 0.5, 2.0), (0, "bob", 1.0, 4.0)]
    assert sum(row[2] for row in found) == 2.0


def test_what_is_still_held_counts_until_now_and_what_began_before_from_the_beginning() -> None:
    assert rows(machine(-5 * HOUR), now=HOUR) == [(0, IDLE, 2.0, 8.0)]
    assert rows(machine(2 * HOUR), now=HOUR) == []


def test_a_share_of_another_projects_machine_is_only_its_users() -> None:
    assert rows(share(0, HOUR, id="theirs")) == [(0, "ann", 1.0, 4.0)]


def test_a_share_that_another_project_has_is_neither_idle_nor_counted_here() -> None:
    lent = replace(share(0, HOUR, ""), lent=True)
    assert rows(machine(0, HOUR), lent, share(0, 30 * MINUTE)) == [(0, IDLE, 0.5, 2.0), (0, "ann", 0.5, 2.0)]


def test_a_share_without_a_known_user_is_of_others_and_not_idle() -> None:
    assert rows(machine(0, HOUR), share(0, HOUR, "")) == [(0, OTHERS, 1.0, 4.0), (0, IDLE, 1.0, 4.0)][::-1]


times = st.integers(-2 * HOUR, 30 * HOUR)
shares = st.lists(st.tuples(times, st.integers(0, 20 * HOUR), st.sampled_from(["ann", "bob"])), max_size=2)


@given(times, st.integers(0, 30 * HOUR), shares)
def test_the_rows_add_up_to_the_machines_whatever_its_jobs_had(
    start: int, length: int, jobs: list[tuple[int, int, str]]
) -> None:
    """Of jobs within the machine's life, each with half of it."""
    end = start + length
    held = [share(max(start, a), min(end, max(start, a) + span), user) for a, span, user in jobs]
    found = rows(machine(start, end), *(each for each in held if each.start < (each.end or 0)), now=DAY)
    counted = max(0, min(end, DAY) - max(start, 0)) / HOUR
    assert sum(row[2] for row in found) == pytest.approx(2.0 * counted, abs=1e-4)
    assert sum(row[3] for row in found) == pytest.approx(8 * counted, abs=1e-2)


def test_a_day_is_stored_and_read_as_it_was() -> None:
    found = spent([machine(0, 30 * HOUR), share(HOUR, 2 * HOUR)], DAY_ONE, DAY_ONE + 3 * DAY, DAY_ONE + 3 * DAY)
    days = ledger.days("p", found, DAY_ONE, DAY_ONE + 3 * DAY)
    assert [len(day.rows) for day in days] == [2, 1, 0]
    assert sorted(row for day in days for row in ledger.stored(day)) == found


def test_a_day_of_a_thousand_users_keeps_the_most_expensive_and_the_sum_of_the_rest() -> None:
    users = [share(0, HOUR, f"user-{number:04d}", price=number) for number in range(1, 1001)]
    found = spent([machine(0, HOUR, price=1_000_000.0), *users], DAY_ONE, DAY_ONE + DAY, DAY_ONE + DAY)
    (day,) = ledger.days("p", found, DAY_ONE, DAY_ONE + DAY)
    assert len(day.rows) == MOST_ROWS - 1 and {row.user for row in day.rows} >= {"user-1000", IDLE, OTHERS}
    assert sum(row.dollars for row in day.rows) == pytest.approx(1_000_000)
    assert len(day.model_dump_json()) < 300_000


def test_rows_are_grouped_and_idle_time_is_a_share_of_each_group() -> None:
    found = spent([machine(0, 26 * HOUR), share(0, HOUR)], DAY_ONE, DAY_ONE + 2 * DAY, DAY_ONE + 2 * DAY)
    named = [("main", row) for row in found]
    (pool,) = ledger.grouped(named, "fleet", DAY)
    assert pool.name == "pool" and pool.total == pytest.approx(Amount(52.0, 51.0, 208.0, 204.0))
    assert {at - DAY_ONE: amount.dollars for at, amount in pool.steps.items()} == {0: 48.0, DAY: 4.0}
    assert [each.name for each in ledger.grouped(named, "user", DAY)] == [IDLE, "ann"]
    assert [each.name for each in ledger.grouped(named, "project", HOUR)] == ["main"]
    assert [each.name for each in ledger.grouped(named, "gpu", HOUR)] == ["H100"]


def test_the_forecast_goes_on_like_the_last_seven_days() -> None:
    month = (DAY_ONE, DAY_ONE + 30 * DAY)
    daily = [Spent(DAY_ONE + number * DAY, "ann", "pool", "", 10.0 if number < 5 else 1.0, 0) for number in range(12)]
    so_far, end = ledger.forecast(daily, DAY_ONE, month, DAY_ONE + 12 * DAY)
    assert (so_far, end) == pytest.approx((57.0, 57.0 + 18 * 1.0))
    assert ledger.forecast(daily[:1], DAY_ONE, month, DAY_ONE + HOUR) == pytest.approx(
        (10.0, 10.0 + 29.9583 * 10), 1e-3
    )
    assert ledger.forecast([], DAY_ONE, month, DAY_ONE + HOUR) == (0.0, 0.0)
