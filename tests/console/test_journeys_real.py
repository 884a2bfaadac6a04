"""What people come to the console for, from the first click to what they wanted."""

from __future__ import annotations

from collections.abc import Callable

from tests.console.harness import world
from tests.console.harness.browser import Tab
from tests.harness.gates import gate
from tests.harness.server import Server, until

HEAD = {"css": ".run-line"}  # the status of what a page is about


def test_somebody_signs_in_and_out(server: Server, tab: Tab) -> None:
    tab.allowed.append("status of 401")
    tab.open("#/main/runs")
    tab.fill("Token", "a wrong one")
    tab.press("Sign in")
    tab.see(role="alert")
    tab.sign_in(server.token)
    tab.heading("Runs")  # where the link led
    assert tab.place() == "/#/main/runs"
    tab.press("You: admin")
    tab.press("Sign out", "menuitem")
    tab.see(role="button", name="Sign in")
    assert tab.script("JSON.stringify({ ...sessionStorage, ...localStorage })").find(server.token) == -1


def test_a_run_is_launched_from_yaml_and_watched_until_it_ends(server: Server, signed_in: Tab) -> None:
    tab = signed_in
    tab.follow("Launch")
    with gate() as step:
        tab.fill("Configuration", f"type: task\nname: journey\ncomands:\n  - {step.command}\n")
        tab.see("did you mean")
        tab.see(role="button", name="Line 3")
        text = f"type: task\nname: journey\ncommands:\n  - echo before\n  - {step.command}\n  - echo after\n"
        tab.fill("Configuration", f"{text}resources: {{cpu: 1.., memory: 0.1GB.., disk: 1GB..}}\n")
        tab.see("Creates journey.")
        tab.press("Apply")
        tab.heading("journey")
        tab.see("running", within=HEAD)
        tab.follow("Logs")
        tab.see("before")
        assert "after" not in tab.text(css="main")
        step.open()
        tab.see("after", exact=True)
    world.wait(server, "journey", "done")
    tab.see("done", within=HEAD)


def test_a_failed_run_shows_its_reason_where_it_is_listed(signed_in: Tab) -> None:
    tab = signed_in
    tab.go("#/main/runs")
    tab.see("exited with status 3", within=tab.row("broken"))


def test_a_run_is_stopped(server: Server, signed_in: Tab) -> None:
    tab = signed_in
    world.apply(server, world.task("to-stop", "sleep 36000"))
    world.wait(server, "to-stop", "running")
    tab.go("#/main/runs/to-stop")
    tab.press("Stop")
    tab.press("Stop: its jobs get time to end", "menuitem")
    tab.see(role="heading", name="Stop to-stop?")
    tab.press("Stop", within={"role": "dialog"})
    world.wait(server, "to-stop", "terminated")
    tab.see("terminated", within=HEAD)


def test_a_service_gets_a_new_version_and_goes_back(server: Server, signed_in: Tab) -> None:
    tab = signed_in
    world.apply(server, world.chat("versions", env={"VERSION": "1"}))
    world.wait(server, "versions", "running")
    tab.go("#/main/services/versions?tab=rollout")
    tab.see("All replicas run revision 0.")
    tab.follow("Change")
    tab.settled()
    text = tab.value("Configuration")
    assert "VERSION" in text
    tab.fill("Configuration", text.replace('VERSION: "1"', 'VERSION: "2"'))
    tab.see("Changes versions in place.")
    tab.press("Apply")
    tab.heading("versions")
    tab.go("#/main/services/versions?tab=rollout")
    tab.see("All replicas run revision 1.")
    replicas = world.v1(server, "GET", "/runs/versions/service")["replicas"]
    assert {each["revision"] for each in replicas if each["ready_at"]} == {1}
    tab.see(role="heading", name="Revision 1, the latest")
    tab.press("Roll back to revision 0")
    tab.see("removed", within={"role": "dialog"})
    tab.press("Roll back", within={"role": "dialog"})
    tab.see(role="heading", name="Revision 2, the latest")
    tab.see("All replicas run revision 2.")
    assert world.v1(server, "GET", "/runs/versions/spec")["env"] == {"VERSION": "1"}


def test_a_model_is_tried(signed_in: Tab) -> None:
    tab = signed_in
    tab.go("#/main/services/chat?tab=try")
    tab.fill("Message", "is there <b>anybody</b>?")
    tab.press("Send")
    tab.see("You said: is there <b>anybody</b>?")
    tab.see("tokens/s")
    tab.follow("Call it")
    tab.see("chat.completions.create")


def test_an_offer_is_found_and_used(signed_in: Tab) -> None:
    tab = signed_in
    tab.follow("Offers")
    tab.fill("GPU", "A100")
    tab.press("Find")
    tab.see(role="heading", name="A100 80GB")
    assert "gpu=A100" in tab.place()
    tab.follow("Use sim.a100, A100 80GB in aws sim-north")
    tab.see(role="heading", name="Launch")
    tab.settled()
    assert "gpu: A100:80GB:1" in tab.value("Configuration")


def test_a_reader_of_a_project_launches_nothing(server: Server, tabs: Callable[..., Tab]) -> None:
    tab = tabs(token=world.token_of(server, "ann"))
    tab.open("#/main/runs")
    tab.heading("Runs")
    until("the rows", lambda: tab.count(role="row") > 1)
    tab.go("#/main/offers")
    tab.see(role="heading", name="Offers")


def test_somebody_becomes_a_member_and_a_secret_is_kept(server: Server, signed_in: Tab) -> None:
    tab = signed_in
    tab.go("#/main/settings/members")
    tab.press("Add a member")
    tab.fill("User", "bob", within={"role": "dialog"})
    tab.press("Add", within={"role": "dialog"})
    tab.see("bob", within={"role": "table"})
    tab.go("#/main/settings/secrets")
    tab.press("Add a secret")
    tab.fill("Name", "api_key", within={"role": "dialog"})
    tab.fill("Value", "hush <b>", within={"role": "dialog"})
    tab.press("Save", within={"role": "dialog"})
    tab.see("api_key", within={"role": "table"})
    assert "hush" not in tab.text(css="body")
    members = {each["user"] for each in world.v1(server, "GET", "/members")["items"]}
    assert "bob" in members and world.v1(server, "GET", "/secrets/api_key")["value"] == "hush <b>"
