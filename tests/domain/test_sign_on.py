"""Who an account is here, and who may have one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from chalicelib.domain.sign_on import Claims, check, claims_of, group_rights, together
from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import Refused

ADMIN, MANAGER, USER = ProjectRole


def rules(**more: Any) -> SignOnProvider:
    return SignOnProvider.model_validate(
        {"name": "corp", "issuer": "https://login.example.com", "client_id": "dstack", **more}
    )


def account(**more: Any) -> dict[str, Any]:
    return {"sub": "1", "preferred_username": "ann", "email": "ann@example.com", "email_verified": True, **more}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({}, "ann"),
        ({"preferred_username": "Ann.O'Hara@corp.example"}, "Ann-O-Hara"),
        ({"preferred_username": None}, "ann"),
        ({"preferred_username": "a" * 90}, "a" * 56),
        ({"preferred_username": "../../etc"}, "etc"),
    ],
)
def test_the_name_here_is_made_of_a_claim(claims: dict[str, Any], expected: str) -> None:
    assert claims_of(account(**claims), rules()).username == expected


def test_another_claim_can_name_the_user() -> None:
    assert claims_of(account(upn="bob"), rules(username_claim="upn")).username == "bob"
    with pytest.raises(Refused, match=r"`preferred_username` is `\.\.\.`\. It sent `preferred_username`, `sub`"):
        claims_of({"sub": "1", "preferred_username": "..."}, rules())
    with pytest.raises(Refused, match=r"there is no `upn`\. It sent `sub`"):
        claims_of({"sub": "1"}, rules(username_claim="upn"))


@pytest.mark.parametrize(
    ("verified", "email"), [(True, "ann@example.com"), ("true", "ann@example.com"), (False, ""), (None, "")]
)
def test_only_a_verified_address_counts(verified: Any, email: str) -> None:
    assert claims_of(account(email_verified=verified), rules()).email == email


@pytest.mark.parametrize(
    ("info", "email"),
    [
        ({}, "ann@example.com"),
        ({"email": "ann@example.com"}, "ann@example.com"),
        ({"email": "boss@example.com"}, ""),
        ({"email": "boss@example.com", "email_verified": True}, "boss@example.com"),
        ({"email_verified": False}, ""),
    ],
)
def test_an_address_is_verified_only_by_who_says_it(info: dict[str, Any], email: str) -> None:
    assert claims_of(together(account(), info), rules()).email == email


@pytest.mark.parametrize("listed", [5, True, {"a": 1}])
def test_groups_that_are_something_else_are_refused(listed: Any) -> None:
    with pytest.raises(Refused, match=f"doesn't list your groups: `groups` is `{re.escape(str(listed))}`"):
        claims_of(account(groups=listed), rules())


@pytest.mark.parametrize(("listed", "groups"), [(["a", "b"], ("a", "b")), ("a", ("a",)), (None, ()), ([1], ("1",))])
def test_groups_are_a_list_or_a_word(listed: Any, groups: tuple[str, ...]) -> None:
    assert claims_of(account(teams=listed), rules(groups_claim="teams")).groups == groups


@pytest.mark.parametrize(
    ("email", "wrong"),
    [("ann@example.com", ""), ("ann@EXAMPLE.com", ""), ("ann@example.com.evil.org", "may not"), ("", "verified")],
)
def test_accounts_of_other_domains_may_not_sign_on(email: str, wrong: str) -> None:
    claims = Claims("1", "ann", email)
    if not wrong:
        check(claims, rules(email_domains=["@Example.com"]))
        return
    with pytest.raises(Refused, match=wrong):
        check(claims, rules(email_domains=["@Example.com"]))


def test_only_members_of_a_group_may_sign_on() -> None:
    closed = rules(groups=[{"name": "gpu"}, {"name": "ops"}], only_groups=True)
    check(Claims("1", "ann", groups=("ops", "other")), closed)
    with pytest.raises(Refused, match=r"it sent the groups other, more\. Ask for one of them: gpu, ops"):
        check(Claims("1", "ann", groups=("other", "more")), closed)
    with pytest.raises(
        Refused, match="it sent no `groups`, but `email`, `email_verified`, `preferred_username`, `sub`"
    ):
        check(claims_of(account(), closed), closed)


def test_an_address_that_isnt_verified_is_named() -> None:
    provider = rules(email_domains=["example.com"])
    with pytest.raises(Refused, match=r"ann@example\.com is verified\. It sent `email`, `email_verified`"):
        check(claims_of(account(email_verified=False), provider), provider)


def test_the_strongest_role_of_several_groups_wins() -> None:
    made = rules(
        groups=[
            {"name": "a", "projects": [{"name": "main", "role": "manager"}, {"name": "other"}]},
            {"name": "b", "projects": [{"name": "main", "role": "user"}]},
            {"name": "c", "admin": True, "projects": [{"name": "main", "role": "admin"}]},
        ]
    )
    given = group_rights(Claims("1", "ann", groups=("b", "a")), made)
    assert (given.admin, dict(given.projects)) == (False, {"main": MANAGER, "other": USER})
    given = group_rights(Claims("1", "ann", groups=("a", "c")), made)
    assert (given.admin, given.projects["main"]) == (True, ADMIN)


def test_without_groups_of_admins_nobody_loses_that_role() -> None:
    assert group_rights(Claims("1", "ann"), rules(groups=[{"name": "a"}])).admin is None


@pytest.mark.parametrize(
    ("written", "at", "message"),
    [
        ({"issuer": "http://login.example.com"}, "issuer", "https"),
        ({"issuer": "https://login.example.com?x=1"}, "issuer", "no query"),
        ({"issuer": "https://accounts.google.com"}, "email_domains", "anybody"),
        ({"issuer": "https://login.microsoftonline.com/common/v2.0"}, "email_domains", "anybody"),
        ({"scopes": ["profile"]}, "scopes", "openid"),
        ({"only_groups": True}, "groups", "needs `groups`"),
        ({"groups": [{"name": "a"}, {"name": "a"}]}, "groups.1", "twice"),
        ({"name": "No Name"}, "", "name"),
        ({"session": 5}, "session", "a minute to a year"),
        ({"redirect_url": "console/auth"}, "redirect_url", "the address of a page"),
    ],
)
def test_what_would_let_everybody_in_or_nobody_is_refused(written: dict[str, Any], at: str, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        rules(**written)
    found = raised.value.errors()[0]
    assert message in str(found["msg"]) + str(found.get("ctx", {}))
    assert at in str(found["loc"]) or at in str(found.get("ctx", {}).get("faults", ""))


@pytest.mark.parametrize(
    "issuer", ["http://localhost:8080", "https://login.microsoftonline.com/7a4e/v2.0", "https://example.okta.com/"]
)
def test_an_organisations_own_issuer_needs_no_more(issuer: str) -> None:
    assert rules(issuer=issuer).issuer == issuer
