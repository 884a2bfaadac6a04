"""What is managed in the console: members, secrets, quotas, access tokens, users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.harness.browser import Tab
from tests.console.harness.world import v1
from tests.harness.server import HttpError, Server

DIALOG = {"role": "dialog"}


@pytest.fixture
def page(server: Server, tabs: Callable[..., Tab]) -> Tab:
    tab = tabs(token=server.token)
    tab.open("#/main/settings/members")
    tab.see(role="heading", name="Members")
    return tab


def names(answer: dict[str, Any], key: str) -> set[str]:
    return {item[key] for item in answer["items"]}


def test_a_member_is_added_given_a_role_and_removed(server: Server, page: Tab) -> None:
    page.press("Add a member")
    page.fill("User", "nobody-of-this-name", within=DIALOG)
    page.allowed.append("/members/nobody-of-this-name")
    page.press("Add", within=DIALOG)
    page.see(role="alert", within=DIALOG)  # the dialog stays, with what was wrong
    page.fill("User", "bob", within=DIALOG)
    page.press("Add", within=DIALOG)
    page.see(**page.row("bob"))
    page.choose("Role of bob", "manager")
    page.see("bob is manager of main.")
    assert {"user": "bob", "role": "manager"}.items() <= next(
        each for each in v1(server, "GET", "/members")["items"] if each["user"] == "bob"
    ).items()
    page.press("Remove bob")
    page.press("Remove", within=DIALOG)
    page.gone(role="button", name="Remove bob")
    assert names(v1(server, "GET", "/members"), "user") == {"admin", "ann"}


def test_what_was_typed_into_a_form_isnt_lost_by_a_key(page: Tab) -> None:
    page.press("Add a member")
    page.keys("Escape")
    page.gone(**DIALOG)
    page.press("Add a member")
    page.fill("User", "somebody", within=DIALOG)
    page.keys("Escape")
    page.see(role="dialog", name="Drop what you typed?")
    page.keys("Escape")
    page.gone(role="dialog", name="Drop what you typed?")
    assert page.value("User") == "somebody"
    page.keys("Escape")
    page.press("Drop it")
    page.gone(**DIALOG)


def test_a_configuration_is_stored_for_rules_and_deleted(server: Server, page: Tab) -> None:
    page.follow("Automations")
    page.follow("Store one")
    page.heading("Store a configuration")
    page.fill("Configuration", "type: task\nname: retrain\ncomands: [ls]\n")
    page.see("Line 3")
    page.fill("Configuration", "type: task\nname: retrain\ncommands: [ls]\n")
    page.see("Creates retrain.")
    page.press("Store")
    page.see(**page.row("retrain"))
    assert page.place() == "/#/main/settings/automations"
    (stored,) = server.call("/api/project/main/automations/list", {})
    assert (stored["name"], stored["type"], stored["user"]) == ("retrain", "task", "admin")
    page.press("Delete the automation retrain")
    page.press("Delete", within=DIALOG)
    page.see("No configuration is stored.")


def test_a_secret_is_stored_and_never_shown(server: Server, page: Tab) -> None:
    page.follow("Secrets")
    page.press("Add a secret")
    page.fill("Name", "wandb", within=DIALOG)
    page.fill("Value", "a value that nobody sees", within=DIALOG)
    page.press("Save", within=DIALOG)
    page.see(role="button", name="Delete the secret wandb")
    assert "a value that nobody sees" not in page.text(css="body")
    assert v1(server, "GET", "/secrets/wandb")["value"] == "a value that nobody sees"
    assert "GET /api/v1/projects/main/secrets/wandb" not in page.asked()
    page.press("Delete the secret wandb")
    page.press("Delete", within=DIALOG)
    page.gone(role="button", name="Delete the secret wandb")
    assert "wandb" not in names(v1(server, "GET", "/secrets"), "name")


def test_a_quota_is_set_and_taken_away(server: Server, page: Tab) -> None:
    page.follow("Quotas")
    page.press("Limit a user")
    page.fill("User", "ann", within=DIALOG)
    page.fill("GPUs at once", "4", within=DIALOG)
    page.press("Save", within=DIALOG)
    page.see(**page.row("ann"))
    (ann,) = [each for each in v1(server, "GET", "/quota")["users"] if each["user"] == "ann"]
    assert ann["limits"] == {"gpus": 4, "jobs": None, "usd_per_day": None}
    page.press("Change", within=page.row("ann"))
    page.fill("GPUs at once", "", within=DIALOG)
    page.press("Save", within=DIALOG)
    page.gone(role="dialog")
    assert all(each["limits"]["gpus"] is None for each in v1(server, "GET", "/quota")["users"])


def test_an_access_token_is_shown_once_works_and_is_revoked(server: Server, page: Tab) -> None:
    page.follow("Your account")
    page.press("Make a token")
    page.fill("Name", "nightly", within=DIALOG)
    page.fill("Dollars a day", "5", within=DIALOG)
    page.press("Make it", within=DIALOG)
    page.see("Copy it now: it is shown only this once.")
    token = page.text(css="dialog code").strip()
    assert server.call("/api/v1/users/me", method="GET", token=token)["name"] == "admin"
    page.press("Done")
    page.see(**page.row("$0.00 of $5.00"))
    assert token not in page.text(css="body")
    page.press("Revoke the token nightly")
    page.press("Revoke", within=DIALOG)
    page.gone(role="button", name="Revoke the token nightly")
    with pytest.raises(HttpError, match=r"401|403"):
        server.call("/api/v1/users/me", method="GET", token=token)


def test_a_user_is_added_and_deactivated(server: Server, page: Tab) -> None:
    page.follow("Users")
    page.press("Add a user")
    page.fill("Name", "zoe", within=DIALOG)
    page.press("Add", within=DIALOG)
    page.see(role="heading", name="The token of zoe")
    token = page.text(css="dialog code").strip()
    assert server.call("/api/v1/users/me", method="GET", token=token)["name"] == "zoe"
    page.press("Done")
    page.press("What to do with zoe")
    page.press("Deactivate", "menuitem")
    page.press("Deactivate", within=DIALOG)
    page.see("inactive", within=page.row("zoe"))
    with pytest.raises(HttpError, match=r"401|403"):
        server.call("/api/v1/users/me", method="GET", token=token)
    page.press("What to do with zoe")
    page.press("Delete", "menuitem")
    page.press("Delete", within=DIALOG)
    page.gone(role="button", name="What to do with zoe")
