"""The page of a run: its log, why it waits, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.harness import world
from tests.console.harness.browser import CONTRAST, Tab
from tests.harness.gates import gate
from tests.harness.server import Server, until

pytestmark = pytest.mark.slow

NOISY = """
import sys
sys.stdout.write("".join(f"\\033[32mstep {number}\\033[0m of many\\n" for number in range(1, 5001)))
sys.stdout.write("10%\\r100%\\n<b>markup</b> \\u202eback\\n" + "x" * 1000000 + "\\n")
"""


@pytest.fixture
def signed_in(tabs: Callable[..., Tab], server: Server) -> Tab:
    tab = tabs(token=server.token)
    tab.open("#/main/runs")
    tab.heading("Runs")
    return tab


@pytest.fixture(scope="module")
def noisy(server: Server) -> str:
    """The name of a run with a log of 5,003 lines, one of a megabyte."""
    world.apply(server, world.task("noisy", f"cat > noise.py <<'END'{NOISY}END\npython3 noise.py"))
    world.wait(server, "noisy", "done")
    return "noisy"


def logged(tab: Tab) -> None:
    tab.shows("5,003 lines, complete", css=".log-state")


def test_a_noisy_one_is_for_everybody(signed_in: Tab, noisy: str) -> None:
    """In each of its parts that shows what it wrote; those of others are looked at with all pages."""
    for part in ("summary", "logs"):
        signed_in.go(f"#/main/runs/{noisy}?tab={part}")
        signed_in.heading(noisy)
        signed_in.see(css=".log-text")
        assert signed_in.axe() == [], part
        signed_in.theme("dark")
        assert signed_in.axe(CONTRAST) == [], part
        signed_in.theme("light")
        signed_in.resize(400, 800)
        signed_in.settled()
        assert signed_in.sideways() <= 0, part
        signed_in.resize(1280, 800)


def test_all_jobs_of_a_run_are_drawn_side_by_side(signed_in: Tab, server: Server) -> None:
    world.apply(server, world.task("pair", "echo node $DSTACK_NODE_RANK", nodes=2))
    world.wait(server, "pair", "done")
    signed_in.go("#/main/runs/pair")
    signed_in.see("All 2 jobs")
    signed_in.see("2 done")
    lanes = signed_in.texts(css=".lanes > li")
    assert [lane.split()[0] for lane in lanes] == ["pair-0-0", "pair-1-0"]
    assert all("Running: " in lane for lane in lanes)
    signed_in.click(css=".all-jobs summary")
    signed_in.gone(css=".lanes")
    signed_in.click(css=".all-jobs summary")
    assert signed_in.axe() == []
    signed_in.follow("pair-1-0")
    signed_in.see("node 1")


def test_a_log_is_read_searched_and_linked(signed_in: Tab, noisy: str) -> None:
    signed_in.open(f"#/main/runs/{noisy}")
    signed_in.follow("All of the log")
    logged(signed_in)
    signed_in.see("990,000 more characters")  # it follows: the end is in sight, the beginning of a long line
    assert signed_in.script("document.querySelector('.log-box').textContent.length") < 100_000
    assert signed_in.script("document.querySelectorAll('*').length") < 3_000
    signed_in.keys("/")
    signed_in.type("step 4711")
    signed_in.shows("1 line", css=".log-found")
    signed_in.keys("Enter")
    signed_in.see(role="link", name="Line 4711")
    assert signed_in.text(css=".log-line.current").split() == ["4711", "step", "4711", "of", "many"]
    assert signed_in.count(css=".log-line.current mark.fg-2") == 1
    signed_in.follow("Line 4711")
    assert signed_in.place().endswith("line=4711")
    link = signed_in.place()
    signed_in.open("#/main/runs")
    signed_in.open(link)
    signed_in.see(css='.log-line.chosen[data-line="4711"]')


def test_a_log_shows_text_as_it_was_written(signed_in: Tab, noisy: str) -> None:
    signed_in.open(f"#/main/runs/{noisy}?tab=logs&line=5002")
    signed_in.see(css='.log-line.chosen[data-line="5002"]')
    assert signed_in.text(css='.log-line[data-line="5001"] .log-text') == "100%"
    assert signed_in.text(css='.log-line[data-line="5002"] .log-text') == "<b>markup</b> back"
    assert signed_in.count(css=".log-line b") == 0
    signed_in.go(f"#/main/runs/{noisy}?tab=logs&line=17")
    signed_in.see(css='.log-line.chosen[data-line="17"]')


def test_a_log_has_keys_and_room_for_fifteen_lines_on_a_small_screen(signed_in: Tab, noisy: str) -> None:
    signed_in.resize(1280, 640)
    signed_in.open(f"#/main/runs/{noisy}?tab=logs&find=step 49")
    logged(signed_in)
    assert signed_in.script("document.querySelector('.log-box').clientHeight") >= 15 * 20
    signed_in.shows("111 lines", css=".log-found")
    signed_in.click(css=".log-box")
    for keys, place in (("n", "1 of 111"), ("n", "2 of 111"), ("N", "1 of 111"), ("N", "111 of 111")):
        signed_in.keys(keys)
        signed_in.shows(place, css=".log-found")
    assert signed_in.attribute("aria-pressed", role="button", name="Follow") == "false"
    signed_in.keys("f")
    signed_in.see("990,000 more characters")
    assert signed_in.attribute("aria-pressed", role="button", name="Follow") == "true"
    signed_in.press("Only these")
    signed_in.see(role="link", name="Line 4999")
    signed_in.gone(role="link", name="Line 5000")
    assert signed_in.count(css=".log-line") < 100  # of those in sight


def test_a_log_grows_while_one_looks(signed_in: Tab, server: Server) -> None:
    with gate() as spoken:
        world.apply(server, world.task("speaks", "echo first", spoken.command, "echo second"))
        world.wait(server, "speaks", "running")
        signed_in.open("#/main/runs/speaks?tab=logs")
        signed_in.see("first", css=".log-text")
        spoken.open()
        signed_in.shows("second", css=".log-window")
    signed_in.shows("2 lines, complete", css=".log-state")


def test_why_it_waits_is_said_with_what_would_help(signed_in: Tab) -> None:
    signed_in.open("#/main/runs/waits")
    signed_in.heading("Why it waits")
    signed_in.see("What would help:")
    signed_in.press("Check again now")
    signed_in.see("No machine and no offer fits now.")


def test_a_failed_one_says_where_and_why(signed_in: Tab) -> None:
    signed_in.open("#/main/runs/broken")
    signed_in.heading("Why it failed")
    signed_in.shows("exited with status 3", css=".stage.failed")
    signed_in.shows("it will not work", css=".log-tail")


def test_it_is_stopped_and_applied_again_once_one_has_agreed(signed_in: Tab, server: Server) -> None:
    world.apply(server, world.task("shown", "sleep 36000"))
    world.wait(server, "shown", "running")
    signed_in.open("#/main/runs/shown")
    signed_in.press("Stop")
    signed_in.click(role="menuitem", name="Stop: its jobs get time to end")
    signed_in.shows("so far", css="dialog")
    signed_in.press("Cancel")
    assert world.run(server, "shown")["status"] == "running"
    signed_in.press("Stop")
    signed_in.click(role="menuitem", name="Abort: end its jobs at once")
    signed_in.press("Abort", within={"css": "dialog"})
    signed_in.shows("terminated", css=".run-line")
    first = world.run(server, "shown")["id"]
    signed_in.press("Apply again")
    signed_in.press("Apply", within={"css": "dialog"})
    signed_in.shows("running", css=".run-line")
    assert world.run(server, "shown")["id"] != first
    world.v1(server, "POST", "/runs/shown/stop?abort=true")


def test_the_events_page_finds_them_by_actor_and_target(signed_in: Tab) -> None:
    signed_in.open("#/main/events")
    signed_in.fill("Target", "run/broken")
    until("the address", lambda: "target=run%2Fbroken" in signed_in.place())
    signed_in.see("job failed")
    signed_in.choose("Actor", "by people")
    signed_in.gone("job failed")
    signed_in.shows("submitted", css=".events")
    assert "by=people" in signed_in.place() and "target=run%2Fbroken" in signed_in.place()
    assert signed_in.axe() == []
    signed_in.follow("run broken")
    signed_in.heading("broken")


def test_one_travels_to_a_failure_and_can_change_nothing_there(signed_in: Tab) -> None:
    signed_in.open("#/main/past")
    signed_in.heading("Failures, deployments, scaling")
    assert signed_in.axe() == []
    signed_in.click(css=".past-mark", has="run broken")
    signed_in.see(css=".past-mark[aria-current]", has="run broken")
    assert "at=" in signed_in.place()
    signed_in.keys("[", "]")
    signed_in.shows("failed", css="[data-table]", has="broken")
    signed_in.follow("broken")
    signed_in.heading("broken")
    signed_in.shows("This is how it was", css=".past-banner")
    signed_in.shows("it will not work", css=".log-tail")
    assert signed_in.count(role="button", name="Apply again") == 0
    assert signed_in.axe() == []
    signed_in.follow("Now")
    signed_in.see(role="button", name="Apply again")


def test_what_changed_between_submissions_is_shown_and_taken_back(signed_in: Tab, server: Server) -> None:
    served = world.service("revised", "echo first; sleep 36000", probes=[], auth=False)
    world.apply(server, served)
    world.wait(server, "revised", "running")
    world.apply(server, {**served, "commands": ["echo second; sleep 36000"]})
    signed_in.open("#/main/runs/revised?tab=spec")
    until("its first spec", lambda: signed_in.count(css="option", has="revision 0"))
    older = signed_in.attribute("value", css="option", has="revision 0")
    assert older is not None
    signed_in.choose("Compared with", older)
    signed_in.shows("echo first", css=".diff .gone")
    signed_in.shows("echo second", css=".diff .new")
    assert signed_in.axe() == []
    signed_in.choose("Compared with", "")
    signed_in.choose("Spec", older)
    signed_in.press("Roll back to this")
    signed_in.press("Roll back", within={"css": "dialog"})
    signed_in.shows("echo first", css=".code")
    until("a third spec", lambda: signed_in.count(css="option", has="revision 1"))
    world.v1(server, "POST", "/runs/revised/stop?abort=true")
