from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.console.harness import browser as browsers
from tests.console.harness import world
from tests.console.harness.browser import Browser, Tab
from tests.harness.server import Server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of this session."""
    browsers.needed()
    one = Browser()
    yield one
    one.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with whatever a page can show. A test may add to it, and takes back what other tests would stumble over."""
    browsers.needed()
    home = tmp_path_factory.mktemp("console") / "home"
    one = world.start(home)
    try:
        world.furnish(one)
        yield one
    finally:
        one.close()


@pytest.fixture
def tabs(server: Server, browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Makes tabs, each of somebody else. None of them may have done anything wrong at the end."""
    made: list[Tab] = []

    def make(**options: Any) -> Tab:
        made.append(browser.tab(server.url, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def tab(tabs: Callable[..., Tab]) -> Tab:
    return tabs()


@pytest.fixture
def signed_in(server: Server, tabs: Callable[..., Tab]) -> Tab:
    """A tab of the admin's, at the overview. It keeps a token, as its owner may say: few tests are about signing in."""
    tab = tabs(token=server.token)
    tab.open()
    tab.heading("Overview")
    return tab
