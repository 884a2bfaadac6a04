"""`/docs`, which the server has beside the console, is a page for everybody, too."""

from __future__ import annotations

from tests.console.harness.browser import CONTRAST, Tab


def test_nothing_keeps_anybody_from_reading_it(tab: Tab) -> None:
    tab.open("/docs")
    tab.see(role="link", name="get plan")
    everybody(tab)
    tab.follow("get plan")
    tab.see(role="heading", name="Answers")
    everybody(tab)


def everybody(tab: Tab) -> None:
    tab.theme("light")
    assert tab.axe() == []
    tab.theme("dark")
    assert tab.axe(CONTRAST) == []


def test_it_is_read_and_searched_by_keyboard(tab: Tab) -> None:
    tab.open("/docs")
    tab.see(role="link", name="get plan")
    tab.tab_to("Filter")
    tab.type("/runs/get")
    tab.see(role="link", name="get")
    tab.tab_to("get plan")
    tab.keys("Enter")
    tab.see(role="heading", name="Answers")
