"""Journeys without a mouse."""

from __future__ import annotations

from tests.console.harness import world
from tests.console.harness.browser import Tab
from tests.harness.server import Server, until


def test_signing_in(server: Server, tab: Tab) -> None:
    tab.open()
    tab.tab_to("Token")
    tab.type(server.token)
    tab.keys("Enter")
    tab.heading("Overview")


def test_the_first_tab_of_a_page_skips_to_what_it_is_about(server: Server, tab: Tab) -> None:
    tab.open()
    tab.click(label="Keep", exact=False)
    tab.sign_in(server.token)
    tab.ask("reload")
    tab.heading("Overview")
    tab.script("document.activeElement.blur()")
    tab.keys("Tab")
    assert tab.focused() == "a Skip to the page"
    tab.keys("Enter")
    assert tab.script("document.activeElement.id") == "main"


def test_pages_have_keys_and_every_one_is_listed(signed_in: Tab) -> None:
    tab = signed_in
    for key, heading in {"r": "Runs", "s": "Services", "p": "Offers", "e": "Events", "o": "Overview"}.items():
        tab.keys("g", key)
        tab.heading(heading)
    tab.keys("?")
    tab.see("Go to services", within={"role": "dialog"})
    tab.keys("Escape")
    tab.gone(role="dialog")


def test_a_run_is_found_opened_and_its_log_read(signed_in: Tab) -> None:
    tab = signed_in
    tab.keys("g", "r")
    tab.heading("Runs")
    tab.settled()
    tab.keys("/")
    tab.type("ended")
    until("one run", lambda: tab.count(role="row") == 2)
    tab.keys("Tab", "Escape", "j", "Enter")
    tab.heading("ended")
    tab.tab_to("Logs")
    tab.keys("Enter")
    tab.see("said and done")


def test_a_run_is_stopped(server: Server, signed_in: Tab) -> None:
    tab = signed_in
    world.apply(server, world.task("by-keys", "sleep 36000"))
    world.wait(server, "by-keys", "running")
    tab.go("#/main/runs/by-keys")
    tab.tab_to("Stop")
    tab.keys("Enter")
    until("the menu", lambda: "Stop: its" in tab.focused())
    tab.keys("ArrowDown")
    until("the next of it", lambda: "Abort: end" in tab.focused())
    tab.keys("Enter")
    tab.see(role="dialog")
    tab.tab_to("Abort")
    tab.keys("Enter")
    world.wait(server, "by-keys", "terminated")
    tab.see("terminated", within={"css": ".run-line"})


def test_a_configuration_is_written_and_applied(server: Server, signed_in: Tab) -> None:
    """Tab leaves the editor, Enter indents, and the hints are reached."""
    tab = signed_in
    tab.keys("g", "n")
    tab.heading("Launch")
    tab.tab_to("Configuration")
    tab.keys("Control+a")
    tab.type("type: task\nname: typed\ncommands:\n")
    tab.type("- echo typed\n")
    tab.keys("Backspace", "Backspace")
    tab.keys("Shift+Home", "Delete")
    tab.type("resources: {cpu: 1.., memory: 0.1GB.., disk: 1GB..}")
    tab.see("Creates typed.")
    tab.tab_to("Apply")
    tab.keys("Enter")
    tab.heading("typed")
    world.wait(server, "typed", "done")


def test_a_model_is_asked(signed_in: Tab) -> None:
    tab = signed_in
    tab.go("#/main/services/chat?tab=try")
    tab.tab_to("Message")
    tab.type("hello")
    tab.keys("Enter")
    tab.see("You said: hello")


def test_what_is_applied_by_keys_is_applied_once(server: Server, signed_in: Tab) -> None:
    tab, text = signed_in, "type: task\ncommands:\n  - sleep 36000\nresources:\n  gpu: H200:8\nretry: true\n"

    def runs() -> set[str]:
        return {run["name"] for run in world.v1(server, "GET", "/runs?limit=100")["items"]}

    tab.go("#/main/launch")
    before = runs()
    tab.fill("Configuration", text)
    tab.keys("Control+Enter")  # nothing is known of it yet, so nothing happens
    tab.see(css=".launch:has(.plan[aria-busy=false]) .button.primary:enabled")
    assert runs() == before
    tab.keys("Control+Enter", "Control+Enter", "Control+Enter")
    tab.gone(label="Configuration")
    made = runs() - before
    try:
        assert len(made) == 1
    finally:
        for name in made:
            world.v1(server, "POST", f"/runs/{name}/stop?abort=true")
