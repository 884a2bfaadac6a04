"""What the console may cost its users and its server: bytes, calls, elements of the page. Times are benches'."""

from __future__ import annotations

from collections.abc import Callable

from tests.console.harness.browser import Tab
from tests.harness.server import Server, until

FILES, FIRST_LOAD, ALL = 4, 60_000, 120_000  # bytes on the way
NODES = 2_500  # elements, however long the list
RUNS = 10_000
MINUTE = 60
# Elements of rows that are made while windows and notches are scrolled by: those that show rows show others.
MADE = """(async () => {
  const box = document.querySelector('[data-table]'), known = new Set();
  const frame = () => new Promise(requestAnimationFrame);
  const scroll = async (far) => { box.scrollTop += far; await frame(); await frame(); };
  await scroll(box.clientHeight); // a row of space is above, and as many rows in sight as will be
  await scroll(18);
  box.querySelectorAll('tbody *').forEach((each) => known.add(each));
  for (let step = 0; step < 10; step++) await scroll(step % 2 ? 108 : box.clientHeight);
  return [...box.querySelectorAll('tbody *')].filter((each) => !known.has(each)).length;
})()"""


def test_the_first_load_is_few_small_files(server: Server, tabs: Callable[..., Tab]) -> None:
    tab = tabs(first=True, token=server.token)
    tab.open()
    tab.heading("Overview")
    tab.settled()
    found = tab.loaded()
    assert len(found) <= FILES and sum(found.values()) <= FIRST_LOAD, found


def test_all_pages_together_are_small(server: Server, tabs: Callable[..., Tab]) -> None:
    tab = tabs(first=True, token=server.token)
    tab.open()
    tab.heading("Overview")
    for place in tab.script("[...document.querySelectorAll('#nav a')].map((link) => link.getAttribute('href'))"):
        tab.go(place)
    tab.go("#/main/runs/train?tab=metrics")
    found = tab.loaded()
    assert sum(size for name, size in found.items() if name == "/" or name.startswith("/console/")) <= ALL, found


def test_an_idle_tab_asks_twice_a_minute_and_a_hidden_one_nothing(server: Server, tabs: Callable[..., Tab]) -> None:
    """Where it has to ask: a server of one's own tells it by itself."""
    tab = tabs(clock=True, polls=True, token=server.token)
    tab.open()
    tab.heading("Overview")
    tab.pass_time(6 * MINUTE, step=15)  # nobody touches it
    before = len(tab.asked())
    tab.pass_time(5 * MINUTE, step=15)
    calls = tab.asked()[before:]
    assert 0 < len(calls) <= 2 * 5 + 1, calls
    tab.hide()
    tab.pass_time(30, step=15)
    before = len(tab.asked())
    tab.pass_time(20 * MINUTE, step=MINUTE)
    assert tab.asked()[before:] == []
    tab.hide(False)
    until("it to ask again", lambda: len(tab.asked()) > before)


def test_ten_thousand_runs_are_filtered_sorted_and_scrolled(server: Server, tabs: Callable[..., Tab]) -> None:
    tab = tabs(runs=RUNS, token=server.token)
    tab.open("#/main/runs")
    rows = "document.querySelector('main table')?.getAttribute('aria-rowcount') ?? 0"
    until("all of them", lambda: int(tab.script(rows)) == RUNS + 1)
    assert tab.script("document.querySelectorAll('*').length") < NODES
    assert tab.script(MADE) == 0, "elements are made for rows that come into sight"
    tab.script("document.querySelector('tbody a').focus(), document.querySelector('[data-table]').scrollTop = 0")
    until("the keys to be the list's, not another run's", lambda: tab.focused() == "region Runs")
    tab.keys("/")
    tab.type("run-77")
    until("those with the name", lambda: int(tab.script(rows)) == 111 + 1)
    tab.press("Name")
    until("an order", lambda: tab.attribute("aria-sort", role="columnheader", has="Name") is not None)
    tab.keys("/", "Control+a", "Delete")
    until("all of them again", lambda: int(tab.script(rows)) == RUNS + 1)
    tab.script("document.querySelector('[data-table]').scrollTop = 1e9")
    until("the last row", lambda: tab.count(css=f'tr[aria-rowindex="{RUNS + 1}"]') == 1)
    assert tab.script("document.querySelectorAll('*').length") < NODES
