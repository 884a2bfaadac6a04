"""Ways through the page: from one state of it to another, and to what isn't there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from tests.console.harness.browser import Browser, Tab
from tests.console.harness.mounted import mounted
from tests.harness.server import Server, until


def test_a_project_that_isnt_there_is_said_and_not_remembered(signed_in: Tab) -> None:
    signed_in.go("#/nowhere/runs")
    signed_in.see("There is no project “nowhere”", exact=False)
    assert signed_in.script("localStorage.getItem('dstack-project')") == "main"


def test_launch_begins_anew_with_another_address_and_copies_get_free_names(signed_in: Tab) -> None:
    signed_in.go("#/main/launch?from=ended")
    until("a copy", lambda: "name: ended-2" in signed_in.value("Configuration"))
    signed_in.go("#/main/launch?template=fleet")
    until("a fleet", lambda: "type: fleet" in signed_in.value("Configuration"))
    signed_in.fill(
        "Configuration", "type: fleet\nname: big\nnodes: 0..3\nresources: {cpu: 1.., memory: 1GB.., disk: 1GB..}\n"
    )
    signed_in.see("up to 3 × $", exact=False)


def test_a_chart_is_read_with_arrow_keys(signed_in: Tab) -> None:
    signed_in.go("#/main/services/chat")
    signed_in.see(css=".chart canvas >> nth=0")
    signed_in.script("document.querySelector('.chart [role=slider]').focus()")
    signed_in.keys("ArrowLeft")
    read = lambda: signed_in.attribute("aria-valuetext", css=".chart [role=slider] >> nth=0") or ""  # noqa: E731
    until("a value", lambda: "requests/s: " in read())
    first = read()
    signed_in.keys("ArrowLeft")
    until("the value before", lambda: "requests/s: " in read() and read() != first)


def test_charts_share_their_crosshair_and_their_range(signed_in: Tab) -> None:
    signed_in.go("#/main/runs/broken?tab=metrics")
    charts = [{"css": f".chart-plot >> nth={number}"} for number in range(4)]
    read = lambda: [signed_in.attribute("aria-valuetext", **each) or "" for each in charts]  # noqa: E731
    until("the charts", lambda: signed_in.count(css=".chart-plot canvas") == 4)
    signed_in.point(0.5, **charts[0])
    until("all are read", lambda: all("UTC" in text for text in read()))
    gpu, memory, cpu, _ = read()
    assert "GPU 0: 9" in gpu and "GPU 1: 40 GB" in memory and "used: 0.5" in cpu
    assert len({moment(text) for text in read()}) == 1

    signed_in.point(0.4, 0.6, **charts[1])
    signed_in.see(role="button", name="Whole range")
    query = parse_qs(signed_in.place().partition("?")[2])
    begin, end = (datetime.fromtimestamp(int(query[name][0]) / 1000, UTC) for name in ("from", "to"))
    for share in (0.15, 0.9):  # the edges of a chart that wasn't dragged over
        signed_in.point(share, **charts[3])
        until("all are inside", lambda: all("UTC" in text and begin <= moment(text) <= end for text in read()))
    signed_in.press("Whole range")
    until("all of it", lambda: "from=" not in signed_in.place())
    signed_in.point(0.9, **charts[3])
    until("the end of it", lambda: all("UTC" in text and moment(text) > end for text in read()))


def moment(text: str) -> datetime:
    """That a chart is read at."""
    return datetime.fromisoformat(text.partition(" UTC")[0]).replace(tzinfo=UTC)


def test_a_part_that_couldnt_be_loaded_comes_once_the_machine_is_online(
    server: Server, tabs: Callable[..., Tab]
) -> None:
    tab = tabs(first=True, token=server.token)
    tab.open()
    tab.heading("Overview")
    tab.allowed.append("ERR_INTERNET_DISCONNECTED")
    tab.offline()
    tab.go("#/main/offers")
    tab.see("This part of the console couldn’t be loaded.")
    tab.offline(False)
    tab.heading("Offers")


@pytest.mark.parametrize("path", ["/api", "/api/"])
def test_it_works_below_a_path_with_a_slash_at_its_end_or_without(server: Server, browser: Browser, path: str) -> None:
    with mounted(server.url, "/api") as (url, strays):
        tab = browser.tab(url, polls=True, first=True)
        tab.open(f"{path}#/main/runs?q=ended")
        tab.sign_in(server.token)
        tab.see(**tab.row("ended"))
        assert tab.place() == "/api/#/main/runs?q=ended"
        tab.go("/api/#/main/offers")
        tab.heading("Offers")
        if path == "/api":  # browsers look ahead, before the page has mended its address
            tab.allowed.append(f"403 (Forbidden) ({url}/console/")
        tab.close()
        assert all(stray.startswith("/console/") for stray in strays) and (path == "/api" or not strays)
