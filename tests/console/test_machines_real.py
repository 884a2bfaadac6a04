"""Fleets, machines, volumes and gateways in the console, and that all of it is live."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.harness import world
from tests.console.harness.browser import Tab
from tests.harness.server import Server, until

pytestmark = pytest.mark.slow


@pytest.fixture
def shown(server: Server, tabs: Callable[..., Tab]) -> Tab:
    tab = tabs(token=server.token)
    tab.open("#/main/fleets")
    tab.heading("Fleets")
    return tab


def test_a_machine_shows_who_has_it(server: Server, shown: Tab) -> None:
    shown.see(role="link", name="pool")
    shown.open("#/main/fleets?tab=machines")
    train = world.run(server, "train")["jobs"][0]["instance"]["name"]
    shown.see(**shown.row(train))
    shown.click(within=shown.row(train), role="link", name="train")
    shown.heading("train")
    assert shown.place().startswith("/#/main/runs/train")
    shown.open(f"#/main/fleets/local/{train.rpartition('-')[2]}")
    shown.heading(train)
    shown.shows("CPU")
    shown.see("In use by")
    shown.see(role="link", name="train")
    assert shown.axe() == []


def test_a_change_comes_by_itself_and_a_hidden_tab_asks_nothing(server: Server, shown: Tab) -> None:
    shown.open("#/main/runs")
    shown.see(role="link", name="train")
    shown.settled()
    asked = len(shown.asked())
    world.apply(server, world.task("seen-at-once", "echo hello"))
    shown.see(role="link", name="seen-at-once")
    assert len(shown.asked()) == asked  # it came on the stream that was open
    shown.hide()
    until("the stream's end", lambda: shown.script("document.visibilityState") == "hidden")
    asked = len(shown.asked())
    world.apply(server, world.task("seen-later", "echo hello"))
    world.wait(server, "seen-later", "done")
    assert len(shown.asked()) == asked and shown.count(role="link", name="seen-later") == 0
    shown.hide(False)
    shown.see(role="link", name="seen-later")
    for name in ("seen-at-once", "seen-later"):
        world.wait(server, name, "done")
        world.v1(server, "DELETE", f"/runs/{name}")
    shown.gone(role="link", name="seen-later")


def test_volumes_say_what_they_cost_and_are_deleted_by_name(server: Server, shown: Tab) -> None:
    volume = {"type": "volume", "name": "scratch", "backend": "aws", "region": "sim-east", "size": "5GB"}
    world.v1(server, "POST", "/volumes", volume)
    shown.open("#/main/volumes")
    shown.see(**shown.row("scratch"))
    shown.shows("5 GB", **shown.row("scratch"))
    assert shown.axe() == []
    shown.press("Delete scratch")
    shown.fill("Type scratch to go on", "scratch")
    shown.press("Delete")
    shown.gone(**shown.row("scratch"))


def test_what_a_volume_would_cost_is_known_by_another(shown: Tab) -> None:
    shown.go("#/main/launch")
    shown.fill("Configuration", "type: volume\nname: more\nbackend: aws\nregion: sim-east\nsize: 10GB\n")
    shown.see("if it is of the kind of data", exact=False)
    shown.fill("Configuration", "type: volume\nname: more\nbackend: aws\nregion: sim-north\nsize: 10GB\n")
    shown.see("aws tells it once the disk is there.", exact=False)


def test_a_gateway_says_what_to_enter_at_the_dns(server: Server, shown: Tab) -> None:
    gateway = {
        "type": "gateway",
        "name": "door",
        "backend": "aws",
        "region": "sim-east",
        "domain": "models.example.com",
    }
    world.v1(server, "POST", "/gateways", gateway)
    try:
        shown.open("#/main/gateways")
        shown.follow("door")
        shown.heading("door")
        shown.shows("No certificates yet.")
        shown.shows("*.models.example.com")
        shown.see("To do: a DNS record")
        assert shown.axe() == []
    finally:
        world.v1(server, "DELETE", "/gateways/door")


def test_a_service_shows_how_many_of_its_replicas_are_ready(shown: Tab) -> None:
    shown.open("#/main/services")
    shown.shows("1/1", **shown.row("chat"))
