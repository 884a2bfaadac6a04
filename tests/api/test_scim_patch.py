"""PATCH as a function, and filters: what directories send, and what nobody should."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.scim import filters, patch
from chalicelib.errors import WrongScim

ANA: dict[str, Any] = {
    "userName": "ana",
    "active": True,
    "name": {"givenName": "Ana", "familyName": "Silva"},
    "emails": [{"value": "ana@example.com", "type": "work", "primary": True}],
}
TEAM: dict[str, Any] = {"displayName": "team", "members": [{"value": "a"}, {"value": "b"}]}
CORE = "urn:ietf:params:scim:schemas:core:2.0:User"
MORE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


def op(kind: str, path: str | None = None, value: Any = None) -> dict[str, Any]:
    return {"op": kind, **({} if path is None else {"path": path}), **({} if value is None else {"value": value})}


@pytest.mark.parametrize(
    ("operation", "changed"),
    [
        (op("replace", value={"active": False}), {"active": False}),
        (op("Replace", "ACTIVE", "False"), {"active": "False"}),
        (op("Add", "displayName", "Ana S."), {"displayName": "Ana S."}),
        (op("replace", "name.givenName", "Eva"), {"name": {"givenName": "Eva", "familyName": "Silva"}}),
        (op("replace", value={"name": {"givenName": "Eva"}}), {"name": {"givenName": "Eva", "familyName": "Silva"}}),
        (op("replace", value={"name.givenName": "Eva"}), {"name": {"givenName": "Eva", "familyName": "Silva"}}),
        (op("replace", f"{CORE}:userName", "eva"), {"userName": "eva"}),
        (op("add", f"{MORE}:department", "IT"), {MORE: {"department": "IT"}}),
        (op("add", "title", "Dr"), {"title": "Dr"}),
        (op("remove", "name"), {"name": None}),
        (op("remove", 'emails[type eq "work"]'), {"emails": []}),
        (
            op("replace", 'emails[type eq "work"].value', "eva@example.com"),
            {"emails": [{"value": "eva@example.com", "type": "work", "primary": True}]},
        ),
        (
            op("add", 'emails[type eq "home"].value', "ana@home.example"),
            {"emails": [*ANA["emails"], {"type": "home", "value": "ana@home.example"}]},
        ),
        (op("add", "emails", [{"value": "ana@example.com"}]), {}),
        (op("replace", "emails", {"value": "x@example.com"}), {"emails": [{"value": "x@example.com"}]}),
        (op("replace", value={"schemas": [], "id": "other", "meta": {}}), {}),
    ],
)
def test_an_operation_on_a_user(operation: dict[str, Any], changed: dict[str, Any]) -> None:
    wanted = {name: value for name, value in {**ANA, **changed}.items() if value is not None}
    assert patch.apply(ANA, [operation]) == wanted


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        (op("add", "members", [{"value": "c"}, {"value": "a"}]), "abc"),
        (op("add", value={"members": [{"value": "c"}]}), "abc"),
        (op("replace", "members", [{"value": "c"}]), "c"),
        (op("replace", "members", []), ""),
        (op("remove", 'members[value eq "a"]'), "b"),
        (op("remove", 'members[VALUE EQ "x"]'), "ab"),
        (op("Remove", "members", [{"$ref": None, "value": "a"}]), "b"),
        (op("remove", "members"), ""),
    ],
)
def test_an_operation_on_members(operation: dict[str, Any], members: str) -> None:
    changed = patch.apply(TEAM, [operation])
    assert "".join(each["value"] for each in changed.get("members", [])) == members


def test_operations_follow_one_another_and_leave_what_they_were_given() -> None:
    before = {**TEAM, "members": [*TEAM["members"]]}
    changed = patch.apply(TEAM, [op("remove", "members"), op("add", "members", {"value": "c"})])
    assert changed["members"] == [{"value": "c"}]
    assert before == TEAM


@pytest.mark.parametrize(
    ("operations", "kind"),
    [
        (None, "invalidSyntax"),
        ([], "invalidSyntax"),
        (["x"], "invalidSyntax"),
        ([op("move", "name")], "invalidSyntax"),
        ([op("remove")], "noTarget"),
        ([op("replace", value="x")], "invalidValue"),
        ([op("replace", "id", "x")], "mutability"),
        ([op("replace", "a b", "x")], "invalidPath"),
        ([op("replace", "members[value", "x")], "invalidPath"),
        ([op("remove", "members[value co 1]")], "invalidPath"),
        ([op("replace", 'members[value eq "a"]', "x")], "invalidValue"),
        ([{"op": "add", "path": 5, "value": "x"}], "invalidPath"),
        ([op("add", "title", "x")] * 101, "tooMany"),
    ],
)
def test_what_cannot_be_done_says_what_is_wrong(operations: Any, kind: str) -> None:
    with pytest.raises(WrongScim) as wrong:
        patch.apply(TEAM, operations)
    assert wrong.value.kind == kind


# --- filters ----------------------------------------------------------------------------------------------------------

KNOWN = ("userName", "externalId", "active", 'emails[type eq "work"].value')


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ('userName eq "ana"', [("username", "ana")]),
        ('USERNAME EQ "a\\"b"', [("username", 'a"b')]),
        (f'{CORE}:userName eq "ana"', [("username", "ana")]),
        ('emails[type eq "work"].value eq "a b"', [('emails[type eq "work"].value', "a b")]),
        ('externalId eq "1" and active eq true', [("externalid", "1"), ("active", True)]),
        ('userName eq "a and b"', [("username", "a and b")]),
    ],
)
def test_a_filter_is_read(written: str, found: list[tuple[str, Any]]) -> None:
    assert [(each.attribute, each.value) for each in filters.parse(written, KNOWN)] == found


@pytest.mark.parametrize(
    "written",
    [
        "",
        "userName",
        'userName co "a"',
        'userName eq "a',
        "userName eq a",
        'userName eq "a" or active eq true',
        'userName eq "a" and',
        'nickName eq "a"',
        'not (userName eq "a")',
        '"' * 500,
        "a" * 2000,
        'emails[type eq "work" eq "x"',
        'userName eq "\\x"',
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(written: str) -> None:
    with pytest.raises(WrongScim) as wrong:
        filters.parse(written, KNOWN)
    assert wrong.value.kind == "invalidFilter"


def test_only_ids_are_compared_with_their_case() -> None:
    (name,), (known,) = filters.parse('userName eq "Ana"', KNOWN), filters.parse('externalId eq "A"', KNOWN)
    assert name.holds("aNA")
    assert known.holds("A")
    assert not known.holds("a")
