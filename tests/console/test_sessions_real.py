"""Being signed in: by a code, until the server refuses the token, and in every tab at once."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import pytest

from tests.console.harness.browser import Tab
from tests.console.harness.world import token_of, v1
from tests.harness.server import HttpError, Server, until

LEFT = 'new BroadcastChannel("dstack-console").postMessage("signed-out")'  # as another tab says it
REFUSED = "401"  # what a browser itself writes about a call that was refused


def code_of(server: Server) -> str:
    return str(server.call("/api/users/sign_in_codes/create", {})["code"])


def pages_of(server: Server) -> set[str]:
    """The tokens of the admin's pages."""
    found = server.call("/api/users/access_tokens/list", {})
    return {each["id"] for each in found if each["name"].startswith("console/")}


def test_a_code_opens_a_page_once_and_is_taken_out_of_the_address(server: Server, tabs: Callable[..., Tab]) -> None:
    tab, code = tabs(), code_of(server)
    tab.open("/#" + urlencode({"code": code, "to": "/main/runs?q=status:failed"}))
    tab.see(role="heading", name="Runs")
    assert tab.place() == "/#/main/runs?q=status:failed"
    assert tab.script("sessionStorage.length") == 0, "only who says so keeps a token in the tab"
    late = tabs()
    late.allowed.append("sign_in_codes/exchange")
    late.open("/#" + urlencode({"code": code}))
    late.see(role="heading", name="Sign in")
    late.see(role="alert")
    assert code not in late.place() and code not in tab.place()
    with pytest.raises(HttpError):
        server.call("/api/auth/sign_in_codes/exchange", {"code": code}, token="")


def test_a_code_is_taken_by_a_page_that_is_already_open(server: Server, tab: Tab) -> None:
    tab.open("#/main/runs")
    tab.see(role="heading", name="Sign in")
    for place, heading in (("/main/runs", "Runs"), ("/main/fleets", "Fleets")):  # the second time somebody is signed in
        query = urlencode({"code": code_of(server), "to": place})
        tab.script(f"location.hash = {query!r}")
        tab.heading(heading)
        assert tab.place() == f"/#{place}"
    assert tab.script("localStorage.getItem('dstack-project')") == "main"


def test_a_page_goes_on_where_it_was_once_somebody_has_signed_in_again(
    server: Server, tabs: Callable[..., Tab]
) -> None:
    tab, first = tabs(), token_of(server, "ann")
    tab.allowed.append(REFUSED)
    tab.open("#/main/runs?q=user:nobody")
    tab.sign_in(first)
    tab.see("No run fits this filter.")
    second = token_of(server, "ann")  # ends the first
    tab.follow("Settings")
    tab.see(role="dialog", name="Sign in again")
    assert tab.axe() == []
    tab.fill("Token", second)
    tab.press("Sign in")
    tab.gone(role="dialog", name="Sign in again")
    tab.see(role="heading", name="main")  # what it had asked for came after all
    assert tab.place() == "/#/main/settings/general"


def test_signing_out_reaches_every_tab(server: Server, tab: Tab) -> None:
    tab.open("#/main/runs")
    tab.sign_in(server.token)
    tab.see(role="heading", name="Runs")
    tab.script(LEFT)
    tab.see(role="heading", name="Sign in")
    assert tab.place() == "/"
    assert tab.script("sessionStorage.length + document.cookie.length") == 0


def test_signing_out_ends_the_token_that_was_made_for_the_page(server: Server, tabs: Callable[..., Tab]) -> None:
    tab, before = tabs(), pages_of(server)
    tab.open("/#" + urlencode({"code": code_of(server), "to": "/main/runs"}))
    tab.see(role="heading", name="Runs")
    (page,) = pages_of(server) - before
    tab.press("You: admin")
    tab.press("Sign out", "menuitem")
    tab.see(role="heading", name="Sign in")
    until("the page's token to end", lambda: page not in pages_of(server))


def test_a_tab_stays_signed_in_only_if_its_owner_says_so(server: Server, tab: Tab) -> None:
    for keep in (False, True):
        tab.open("#/main/runs")
        if keep:
            tab.press("Keep me signed in in this tab", role="checkbox")
        tab.sign_in(server.token)
        tab.see(role="heading", name="Runs")
        tab.script("location.reload()")
        tab.see(role="heading", name="Runs" if keep else "Sign in")


def test_what_an_account_provider_said_is_shown(tab: Tab) -> None:
    tab.open("/#sign-on=corp&error=access_denied&state=x")
    tab.see("corp didn’t sign you in: access_denied.")
    assert "state" not in tab.place()


def test_buttons_that_a_role_may_not_use_are_not_there(server: Server, tabs: Callable[..., Tab]) -> None:
    tab, token = tabs(), token_of(server, "ann")
    tab.open("#/main/settings/members")
    tab.sign_in(token)
    tab.see("ann")
    tab.see("you")
    assert tab.count(role="button", name="Add a member") == 0 and tab.count(role="link", name="Secrets") == 0
    assert tab.count(role="link", name="Users") == 0
    v1(server, "PUT", "/members/ann", {"role": "admin"})
    try:
        other = tabs()
        other.open("#/main/settings/members")
        other.sign_in(token)
        other.see(role="button", name="Add a member")
        other.see(role="link", name="Secrets")
    finally:
        v1(server, "PUT", "/members/ann", {"role": "user"})
