"""`/docs`, which the server has beside the console, is a page for everybody, too."""

from __future__ import annotations

import pytest

from tests.console.harness.browser import Tab


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_keeps_anybody_from_reading_it(tab: Tab, theme: str) -> None:
    tab.theme(theme)
    tab.open("/docs")
    tab.see(role="link", name="get plan")
    assert tab.axe() == []
    tab.follow("get plan")
    tab.see(role="heading", name="Answers")
    assert tab.axe() == []


def test_it_is_read_and_searched_by_keyboard(tab: Tab) -> None:
    tab.open("/docs")
    tab.see(role="link", name="get plan")
    tab.tab_to("Filter")
    tab.type("/runs/get")
    tab.see(role="link", name="get")
    tab.tab_to("get plan")
    tab.keys("Enter")
    tab.see(role="heading", name="Answers")
