"""What is around every page: getting about by keyboard, and lists that many things can be done with at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.harness.browser import Tab
from tests.console.harness.world import apply, task, wait
from tests.harness.server import Server, until


@pytest.fixture
def page(server: Server, tabs: Callable[..., Tab]) -> Tab:
    tab = tabs(token=server.token)
    tab.open("#/main/overview")
    tab.see(role="heading", name="Needs attention")
    return tab


def test_anywhere_by_keys(page: Tab) -> None:
    page.keys("g", "r")
    page.see(role="heading", name="Runs")
    page.keys("?")
    page.see(role="dialog", name="Keys")
    page.keys("Escape")
    page.gone(role="dialog", name="Keys")
    page.keys("Control+k")
    page.type("brok")
    page.see(role="option", name="broken run")
    page.keys("Enter")
    page.see(role="heading", name="broken")
    page.keys("/")  # nothing to filter here, or a filter: no page breaks
    page.keys("Escape")
    page.keys("g", "o")
    page.see(role="heading", name="Overview")


def test_the_tab_says_how_things_are(page: Tab) -> None:
    title = lambda: page.script("document.title")  # noqa: E731
    dotted = lambda: "circle" in page.script("document.querySelector('link[rel=icon]').href")  # noqa: E731
    until(
        "what needs attention", lambda: title().startswith("(") and title().endswith(") Overview · dstack") and dotted()
    )
    page.go("#/main/runs/train")
    until("a run", lambda: title() == "▸ train · dstack" and not dotted())
    page.go("#/main/runs/ended")
    until("its end", lambda: title() == "✓ ended · dstack" and dotted())


def test_a_page_says_that_the_server_was_updated(server: Server, tabs: Callable[..., Tab]) -> None:
    page = tabs(clock=True, polls=True, token=server.token)
    page.open("#/main/overview")
    page.heading("Overview")
    look = lambda: len([call for call in page.asked("/") if call == "GET /"])  # noqa: E731

    def come_back() -> None:
        """After two hours at another tab."""
        before = look()
        page.hide()
        page.pass_time(7200, step=3600)
        page.hide(False)
        until("a look", lambda: look() > before)
        page.settled()

    come_back()
    assert page.count(role="button", name="Load it again") == 0
    # As if this page began with another script: a script's address itself can't be changed under the page's policy.
    older = '<script type="module" src="console/main-OLDER.js"'
    page.script(f"document.documentElement.prepend(document.createComment('{older}'))")
    come_back()
    page.see(role="button", name="Load it again")


def test_keys_do_nothing_while_somebody_types_or_has_switched_them_off(page: Tab) -> None:
    page.keys("g", "r")
    page.see(label="Filter runs", exact=False)
    page.keys("/")
    page.type("g o ?")
    assert page.value("Filter runs") == "g o ?" and page.count(role="dialog") == 0
    page.keys("Escape", "Escape", "?")
    page.press("Keys without Ctrl do something", role="checkbox")
    page.keys("Escape", "g", "o")
    page.see(role="heading", name="Runs")


def test_rows_are_opened_and_selected_by_keys(page: Tab) -> None:
    page.open("#/main/runs?q=broken")
    page.see(**page.row("broken"))
    page.keys("j")
    until("the row", lambda: page.focused().startswith("tr ") and "broken" in page.focused())
    page.keys("x")
    page.see("1 run selected")
    page.keys("Enter")
    page.see(role="heading", name="broken")


def test_the_filter_is_in_the_address_and_says_what_it_does_not_know(page: Tab) -> None:
    page.open("#/main/runs?q=status:failed")
    page.see(**page.row("broken"))
    page.gone(**page.row("train"))
    page.fill("Filter runs", "status:running colour:red")
    page.see(**page.row("train"))
    page.keys("Escape", "Escape")
    page.see("“colour:” isn’t known here")
    assert page.place() == "/#/main/runs?q=status%3Arunning+colour%3Ared"
    page.keys("/", "Control+a")
    page.type("sta")
    page.see(role="option", name="status:", exact=False)
    page.keys("ArrowDown", "Enter")
    page.see(role="option", name="status:failed", exact=False)


def test_several_runs_are_stopped_and_deleted_at_once(server: Server, page: Tab) -> None:
    for name in ("batch-1", "batch-2"):
        apply(server, task(name, "sleep 36000"))
        wait(server, name, "running")
    page.open("#/main/runs?q=name:batch")
    for name in ("batch-1", "batch-2"):
        page.see(**page.row(name))
    page.press("Select all", role="checkbox")
    page.see("2 runs selected")
    page.press("Abort")
    page.see(role="dialog", name="Abort 2 runs?")
    page.press("Abort", within={"role": "dialog"})
    for name in ("batch-1", "batch-2"):
        wait(server, name, "terminated")
    page.open("#/main/runs?q=name:batch status:ended")
    for name in ("batch-1", "batch-2"):
        page.see(**page.row(name))
    page.press("Select all", role="checkbox")
    page.see("2 runs selected")
    page.press("Delete")
    page.press("Delete", within={"role": "dialog"})
    page.see("No run fits this filter.")
