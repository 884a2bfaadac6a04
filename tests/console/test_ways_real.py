"""Ways through the page: from one state of it to another, and to what isn't there."""

from __future__ import annotations

from tests.console.harness.browser import Tab
from tests.harness.server import until


def test_a_row_is_focused_as_the_cursor_comes_to_it(signed_in: Tab) -> None:
    signed_in.go("#/main/runs?q=ended")
    signed_in.settled()
    signed_in.keys("j")
    until("the row", lambda: signed_in.focused().startswith("tr ") and "ended" in signed_in.focused())
    signed_in.keys("Enter")
    signed_in.heading("ended")


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


def test_a_part_that_couldnt_be_loaded_comes_once_the_machine_is_online(signed_in: Tab) -> None:
    signed_in.allowed.append("ERR_INTERNET_DISCONNECTED")
    signed_in.offline()
    signed_in.go("#/main/offers")
    signed_in.see("This part of the console couldn’t be loaded.")
    signed_in.offline(False)
    signed_in.heading("Offers")
