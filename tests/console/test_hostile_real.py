"""Texts of others that are made to do harm: they are shown as what they are, and do nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.console.harness import world
from tests.console.harness.browser import Tab
from tests.harness.server import Server

MARKUP = '<img src=x onerror="document.body.dataset.broken=1"><script>document.body.dataset.broken=1</script>'
BIDI = "a\u202egnp.exe\u2066x"


@pytest.fixture(scope="module")
def hostile(server: Server) -> Iterator[Server]:
    """A run that says such things in its name's place, its environment, its log and its end."""
    said = [f"printf '%s\\n' {shlex.quote(text)}" for text in (MARKUP, BIDI)]
    coloured = "printf '\\033[31mred\\033[0m \\033]0;title\\007 \\033[2J plain\\n'"
    run = world.task("hostile", *said, coloured, "echo the end", env={"TEXT": f"{MARKUP} {BIDI}"})
    world.apply(server, run)
    world.wait(server, "hostile", "done")
    failing = world.task("hostile-end", f"echo {shlex.quote(MARKUP)} >&2; exit 9")
    world.apply(server, failing)
    world.wait(server, "hostile-end", "failed")
    yield server


def harmless(tab: Tab) -> None:
    assert tab.script("document.body.dataset.broken === undefined && !document.querySelector('main img, main script')")


def test_a_log_shows_them_as_they_are(hostile: Server, signed_in: Tab) -> None:
    tab = signed_in
    tab.go("#/main/runs/hostile?tab=logs")
    tab.see("the end")
    tab.see("<script>document.body.dataset.broken=1</script>")
    harmless(tab)
    text = tab.text(css=".log-box")
    assert "plain" in text and "\x1b" not in text and "[31m" not in text
    assert tab.script("document.title").endswith("dstack")
    assert tab.sideways() <= 0


def test_so_do_the_other_parts_of_a_run(hostile: Server, signed_in: Tab) -> None:
    tab = signed_in
    for name in ("hostile", "hostile-end"):
        for part in ("summary", "spec", "jobs", "events"):
            tab.go(f"#/main/runs/{name}?tab={part}")
            tab.heading(name)
            harmless(tab)
            assert tab.sideways() <= 0, (name, part)


def test_names_in_addresses_and_filters_are_texts(hostile: Server, signed_in: Tab) -> None:
    tab = signed_in
    tab.allowed.append("status of 4")
    for place in (
        "#/main/runs/%3Cimg%20src=x%20onerror=alert(1)%3E",
        "#/main/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "#/%3Cb%3E/runs",
        "#/main/runs?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E",
        "#/main/offers?gpu=%3Cb%3E&backends=%E2%80%AEx",
        "#/main/services/..%2F..%2Fusers",
        "#/main/runs/%E0%A4%A",
    ):
        tab.go(place)
        harmless(tab)
        assert tab.count(css="h1") == 1, place


def test_a_configuration_with_markup_is_text_to_the_editor_and_its_plan(signed_in: Tab) -> None:
    tab = signed_in
    tab.go("#/main/launch")
    tab.fill("Configuration", f"type: task\nname: x-ray\n{MARKUP}: 1\n")
    tab.see(role="button", name="Line 3")
    harmless(tab)


def test_what_a_model_says_is_text(signed_in: Tab) -> None:
    tab = signed_in
    tab.go("#/main/services/chat?tab=try")
    tab.fill("Message", f"{MARKUP} {BIDI}")
    tab.press("Send")
    tab.see(f"You said: {MARKUP}")
    harmless(tab)
