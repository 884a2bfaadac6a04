"""`dstack console`: what is opened, and what is printed where no browser is."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.conftest import Dstack
from tests.cli.plane import Plane

CODE = "/api/users/sign_in_codes/create"


@pytest.fixture(autouse=True)
def server(plane: Plane) -> Plane:
    plane.answers[CODE] = {"code": "once-only", "expires_at": "2026-11-21T05:02:00+00:00"}
    return plane


def browsing(dstack: Dstack, opened: list[str], *, there: bool = True) -> Dstack:
    def browse(address: str) -> bool:
        opened.append(address)
        return there

    return Dstack(replace(dstack.terminal, browse=browse), dstack.naps)


def fragment(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).fragment, strict_parsing=True)


def test_it_opens_the_projects_page_with_a_code_that_the_terminal_doesnt_show(dstack: Dstack, plane: Plane) -> None:
    opened: list[str] = []
    ended = browsing(dstack, opened)("console")
    assert ended.code == 0 and ended.out == f"The console of {plane.url} is open in your browser.\n"
    (address,) = opened
    assert address.startswith(f"{plane.url}/#") and fragment(address) == {"code": ["once-only"], "to": ["/main"]}


@pytest.mark.parametrize("flags", [("--no-open",), ()])
def test_without_a_browser_it_prints_the_address_and_says_what_it_is(
    dstack: Dstack, plane: Plane, flags: tuple[str, ...]
) -> None:
    opened: list[str] = []
    ended = browsing(dstack, opened, there=False)("console", *flags)
    assert ended.code == 0 and len(opened) == (not flags)
    assert fragment(ended.out.strip())["code"] == ["once-only"]
    assert "within a minute" in ended.err and "signed in as you" in ended.err


def test_a_code_that_is_none_is_refused(dstack: Dstack, plane: Plane) -> None:
    plane.answers[CODE] = {"code": "a b\n", "expires_at": "2026-11-21T05:02:00+00:00"}
    opened: list[str] = []
    ended = browsing(dstack, opened)("console")
    assert ended.code == 1 and "which it can't be" in ended.err and not opened


# --- the pages of things ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("ps", "/main/runs"),
        ("logs train", "/main/runs/train?tab=logs"),
        ("metrics train", "/main/runs/train?tab=metrics"),
        ("fleet", "/main/fleets"),
        ("fleet list", "/main/fleets"),
        ("volume", "/main/volumes"),
        ("offer", "/main/offers"),
        ("event", "/main/events"),
        ("gateway", "/main/gateways"),
        ("gateway list", "/main/gateways"),
        ("run get train", "/main/runs/train"),
        ("run get --id run-id", "/main/runs/train"),
        ("secret", "/main/settings/secrets"),
        ("secret list", "/main/settings/secrets"),
        ("backend", "/main/settings/backends"),
        ("backend list", "/main/settings/backends"),
        ("export", "/main/settings/exports"),
        ("export list", "/main/settings/exports"),
        ("automation", "/main/settings/automations"),
        ("automation list", "/main/settings/automations"),
        ("project members", "/main/settings/members"),
        ("project quota", "/main/settings/quotas"),
        ("user", "/main/users"),
        ("user list", "/main/users"),
        ("user keys", "/main/account"),
        ("token", "/main/account"),
        ("token list", "/main/account"),
        ("event --within-run train --actor ann", "/main/events?target=run%2Ftrain&user=ann"),
    ],
)
def test_web_prints_the_page_of_the_thing_and_opens_it_signed_in(
    dstack: Dstack, plane: Plane, line: str, place: str
) -> None:
    plane.answers |= {
        "/runs/get": {"id": "run-id", "run_spec": {"run_name": "train"}},
        "/api/projects/main/get_quota": {},
        "/api/users/list": [{"id": "ann-id", "username": "ann"}],
    }
    opened: list[str] = []
    ended = browsing(dstack, opened)(*line.split(), "--web")
    assert ended.code == 0, ended.err
    assert ended.out == f"{plane.url}/#{place}\n", "nothing that signs anybody in is printed"
    (address,) = opened
    assert fragment(address) == {"code": ["once-only"], "to": [place]}


def test_a_name_that_is_no_part_of_an_address_is_quoted(dstack: Dstack, plane: Plane) -> None:
    ended = browsing(dstack, [])("logs", "a/b?c#d", "--web")
    assert ended.out == f"{plane.url}/#/main/runs/a%2Fb%3Fc%23d?tab=logs\n"
