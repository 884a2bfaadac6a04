"""Every page for everybody: found by its navigation, in light and dark, full, empty and failing, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable

from tests.console.harness import world
from tests.console.harness.browser import CONTRAST, Tab
from tests.harness.server import Server

# Beside what the navigation leads to: pages of one thing, their parts, and states that take a click.
INSIDE = (
    *(
        f"#/main/runs/train{tab}"
        for tab in ("", "?tab=logs", "?tab=metrics", "?tab=jobs", "?tab=events", "?tab=spec", "?tab=connect")
    ),
    "#/main/runs/broken",
    "#/main/runs/waits",
    "#/main/runs/nothing",
    *(f"#/main/services/chat{tab}" for tab in ("", "?tab=replicas", "?tab=rollout", "?tab=try", "?tab=call")),
    "#/main/fleets/local",
    "#/main/volumes/data",
    "#/main/offers?by=none",
    "#/main/offers?gpu=H100:512",
    "#/main/nothing",
)


NOBODY = "/runs/nothing"  # isn't found, and its page says so


def places(tab: Tab) -> list[str]:
    """What the navigation leads to, for whoever is signed in."""
    tab.see(role="navigation", name="Pages")
    links = tab.script("[...document.querySelectorAll('#nav a')].map((link) => link.getAttribute('href'))")
    assert len(links) > 5
    return list(links)


def faults(tab: Tab, *rules: str) -> list[str]:
    """What is wrong with the page for somebody: by rule and place; and whether it has its one heading."""
    found = [
        f"{tab.place()}: {each['rule']} {node['at']} {node['why']}"
        for each in tab.axe(*rules)
        for node in each["nodes"]
    ]
    headings = tab.count(css="h1")
    return found if headings == 1 else [*found, f"{tab.place()}: {headings} headings"]


def too_wide(tab: Tab) -> list[str]:
    """Where it scrolls sideways. Letters of twice the size are the same as half as many pixels of the page."""
    wrong = []
    for width, height in ((400, 800), (640, 400)):  # a telephone; 200 percent of a small window
        tab.resize(width, height)
        tab.settled()
        if (more := tab.sideways()) > 0:
            wrong.append(f"{tab.place()}: {more} pixels wider than {width}")
    tab.resize(1280, 800)
    return wrong


def test_pages_that_are_full(signed_in: Tab) -> None:
    """Each is looked at once, in every way."""
    tab = signed_in
    tab.allowed.append(NOBODY)
    wrong = []
    for place in (*places(tab), *INSIDE):
        tab.go(place)
        tab.theme("light")
        wrong += faults(tab)
        tab.theme("dark")
        wrong += faults(tab, CONTRAST)
        wrong += too_wide(tab)
    assert not wrong, "\n".join(wrong)


def test_pages_that_are_empty(server: Server, tabs: Callable[..., Tab]) -> None:
    """Those of somebody who has just come, in a project without anything."""
    server.call("/api/projects/create", {"project_name": "bare"})
    tab = tabs(token=server.token)
    tab.open("#/bare/overview")
    wrong = []
    for place in places(tab):
        tab.go(place)
        wrong += faults(tab)
        tab.theme("dark")
        wrong += faults(tab, CONTRAST)
        tab.theme("light")
    assert not wrong, "\n".join(wrong)


def test_pages_whose_server_is_out_of_reach(signed_in: Tab) -> None:
    """They say so, and are whole again when it is back."""
    tab = signed_in
    tab.allowed.append("ERR_INTERNET_DISCONNECTED")
    found = places(tab)
    tab.go("#/main/launch")  # its script has come
    wrong = []
    tab.offline()
    for place in (*found, "#/main/runs/train", "#/main/services/chat"):
        tab.go(place)
        wrong += faults(tab)
    assert not wrong, "\n".join(wrong)
    tab.go("#/main/offers")
    tab.see("The server can't be reached.")
    tab.offline(False)
    tab.go("#/main/offers?gpu=A100")
    tab.see(role="heading", name="A100 80GB")


def test_the_page_to_sign_in(tab: Tab) -> None:
    tab.open()
    tab.see(role="button", name="Sign in")
    wrong = faults(tab)
    tab.theme("dark")
    wrong += faults(tab, CONTRAST)
    tab.resize(400, 700)
    assert not wrong and tab.sideways() <= 0, "\n".join(wrong)


def test_what_opens_over_a_page(server: Server, signed_in: Tab) -> None:
    """The palette, the keys, a menu, a dialog."""
    tab = signed_in
    wrong = []
    tab.keys("Control+k")
    tab.see(role="dialog")
    wrong += faults(tab)
    tab.keys("Escape", "?")
    tab.see(role="dialog")
    wrong += faults(tab)
    tab.keys("Escape")
    tab.press("You: admin")
    tab.see(role="menuitem", name="Sign out")
    wrong += faults(tab)
    tab.keys("Escape")
    tab.go("#/main/runs/train")
    tab.press("Stop")
    tab.press("Abort: end its jobs at once", "menuitem")
    tab.see(role="dialog")
    wrong += faults(tab)
    tab.press("Cancel", within={"role": "dialog"})
    tab.gone(role="dialog")
    assert not wrong, "\n".join(wrong)
    assert world.run(server, "train")["status"] == "running"
