"""The page of costs: bars and a table of what was counted, by what somebody chooses, as a picture and as a file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from chalicelib.billing.ledger import IDLE
from chalicelib.domain import keys
from chalicelib.domain.costs import CostDay, CostRow
from chalicelib.domain.instants import DAY, Micros, day_of
from chalicelib.runtime.clock import SystemClock
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore
from tests.console.harness import browser as browsers
from tests.console.harness.browser import CONTRAST, Browser, Tab
from tests.harness.server import Server

pytestmark = pytest.mark.slow
NAME = "research"  # a project that nothing runs in: only what was counted


def day(project_id: str, at: Micros, chance: random.Random) -> CostDay:
    def hours(most: float) -> tuple[tuple[int, float, float], ...]:
        return tuple((hour, chance.random() * most, chance.random() * 8) for hour in range(24))

    rows = [
        CostRow(user=user, fleet="h100-eu", gpu="H100", hours=hours(most)) for user, most in (("ana", 9), ("bo", 4))
    ]
    rows.append(CostRow(user="ana", fleet="l4-pool", gpu="L4", hours=hours(1)))
    rows += [
        CostRow(user=IDLE, fleet=fleet, gpu=gpu, hours=hours(2))
        for fleet, gpu in (("h100-eu", "H100"), ("l4-pool", "L4"))
    ]
    return CostDay(project_id=project_id, day=at, rows=tuple(rows))


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A month of a project's days, as they were counted: written while the server, which nothing runs on, is down."""
    browsers.needed()
    home = tmp_path_factory.mktemp("costs") / "home"
    home.mkdir()
    server = Server(home, flags=("--fake-cloud", "--no-local-fleet"))
    try:
        server.start()
        server.call("/api/projects/create", {"project_name": NAME, "is_public": False})
        server.stop()
        write_days(server)
        yield server.start()
    finally:
        server.close()


def write_days(server: Server) -> None:
    store, today = SqliteStore(server.data / "plane.db"), day_of(SystemClock().now())
    found = nouns.find_target(store, keys.project_name(NAME))
    assert found is not None
    chance = random.Random(1)
    store.commit([nouns.put(day(found[0], today - back * DAY, chance)) for back in range(1, 31)])
    store.close()


@pytest.fixture
def visit(spent: Server, browser: Browser) -> Iterator[Callable[[str, str], Tab]]:
    """Opens a page of the project in a tab of its own, as somebody with this token."""
    made: list[Tab] = []

    def go(token: str, page: str) -> Tab:
        tab = browser.tab(spent.url, token=token)
        made.append(tab)
        tab.go(f"#/{NAME}/{page}")
        return tab

    yield go
    for each in made:
        each.close()


@pytest.fixture
def page(spent: Server, visit: Callable[[str, str], Tab]) -> Tab:
    tab = visit(spent.token, "costs")
    tab.heading("Costs")
    return tab


def test_costs_by_user_fleet_and_gpu_add_up(page: Tab) -> None:
    page.see(css=".cost-chart svg[role=img]")
    assert page.count(css=".cost-chart title") == 30
    total = page.text(css=".tile dd .number")
    for by, names in (("User", ["ana", "bo", "idle"]), ("Fleet", ["h100-eu", "l4-pool"]), ("GPU", ["H100", "L4"])):
        page.choose("By", by)
        page.see(role="columnheader", name=by)
        assert sorted(page.texts(css="tbody tr td:first-child")) == names
        assert page.text(css=".tile dd .number") == total
    page.shows("is like the last 7 days")
    assert "by=gpu" in page.place()
    page.choose("Time (UTC)", "Last 7 days")
    page.settled()
    assert "days=7" in page.place() and page.count(css=".cost-chart title") == 7


def test_a_quota_is_a_line_and_today_has_hours(page: Tab, spent: Server) -> None:
    spent.call(f"/api/projects/{NAME}/set_quota", {"money": 300})
    page.go(f"#/{NAME}/costs?days=7")
    page.shows("quota $300.00 a day")
    assert page.count(css=".cost-budget") == 1
    page.choose("Time (UTC)", "Today, by the hour")
    page.shows("No machine was had in this time.")


def test_admins_see_all_projects(page: Tab) -> None:
    page.follow("All projects")
    page.heading("Costs of all projects")
    page.choose("By", "User")
    page.shows("ana")
    page.choose("By", "Project")
    page.settled()
    page.follow(NAME)
    page.heading("Costs")


def test_it_is_for_everybody(page: Tab) -> None:
    assert page.axe() == []
    page.theme("dark")
    assert page.axe(CONTRAST) == []
    page.resize(400, 800)
    page.settled()
    assert page.sideways() <= 0


def test_who_only_runs_things_has_no_such_page(spent: Server, visit: Callable[[str, str], Tab]) -> None:
    cat = spent.call("/api/users/create", {"username": "cat", "global_role": "user"})["creds"]["token"]
    spent.call(f"/api/projects/{NAME}/add_members", {"members": [{"username": "cat", "project_role": "user"}]})
    tab = visit(cat, "runs")
    tab.heading("Runs")
    assert "Costs" not in tab.texts(css="nav a")
