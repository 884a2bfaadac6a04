"""SCIM, with the requests that Okta and Microsoft Entra send, in their order and their shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest
from pydantic import TypeAdapter

from chalicelib.api import dispatch
from chalicelib.contract import scim as contract
from chalicelib.domain import keys
from chalicelib.domain.events import EVERYWHERE, Event
from chalicelib.domain.tenants import GlobalRole, Member, ProjectRole, User
from chalicelib.store import nouns
from chalicelib.store.listing import every
from tests.api.rig import ADMIN, Rig, task
from tests.api.test_sign_on import Corp, at, entered

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
SHAPES: dict[str, Any] = {USER: contract.ScimUser, GROUP: contract.ScimGroup, ERROR: contract.Error}
ANA = {
    "schemas": [USER],
    "userName": "ana@example.com",
    "name": {"givenName": "Ana", "familyName": "Silva"},
    "emails": [{"primary": True, "value": "ana@example.com", "type": "work"}],
    "displayName": "Ana Silva",
    "locale": "en-US",
    "externalId": "00ujl29u0le5T6Aj10h7",
    "groups": [],
    "password": "1mz050nq",
    "active": True,
}


@dataclass(frozen=True)
class Directory:
    """A client of SCIM, which holds every answer to the contract."""

    rig: Rig
    token: str | None

    def call(self, method: str, url: str, body: Any = None) -> tuple[int, Any]:
        split = urlsplit(url)
        headers = {"content-type": "application/scim+json; charset=utf-8"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        content = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        sent = dispatch.Request(method, f"/scim/v2/{split.path}", dict(parse_qsl(split.query)), headers, content)
        reply = dispatch.answer(self.rig.world.plane, sent)
        if reply.status == 204:
            return 204, None
        assert reply.headers["Content-Type"] == "application/scim+json"
        value = orjson.loads(reply.body)
        shape = SHAPES.get(value["schemas"][0])
        if shape is not None and "excludedAttributes" not in url and "attributes" not in url:
            TypeAdapter(shape).validate_python(value, strict=True)
        return reply.status, value

    def ok(self, method: str, url: str, body: Any = None) -> Any:
        status, value = self.call(method, url, body)
        assert status in (200, 201, 204), value
        return value

    def refused(self, method: str, url: str, body: Any = None) -> tuple[int, str | None, str]:
        status, value = self.call(method, url, body)
        assert value["schemas"] == [ERROR]
        assert value["status"] == str(status)
        return status, value.get("scimType"), value["detail"]

    def found(self, kind: str, asked: str) -> list[Any]:
        answer = self.ok("GET", f"{kind}?filter={asked}&startIndex=1&count=100")
        assert answer["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:ListResponse"]
        assert answer["totalResults"] == len(answer["Resources"]) == answer["itemsPerPage"]
        listed: list[Any] = answer["Resources"]
        return listed

    def patch(self, url: str, *operations: Any) -> Any:
        return self.ok("PATCH", url, {"schemas": [PATCH], "Operations": list(operations)})

    def person(self, name: str, **more: Any) -> str:
        made = self.ok("POST", "Users", {"schemas": [USER], "userName": name, "active": True, **more})
        return str(made["id"])

    def group(self, name: str, *members: str) -> str:
        listed = [{"value": each} for each in members]
        made = self.ok("POST", "Groups", {"schemas": [GROUP], "displayName": name, "members": listed})
        return str(made["id"])


def token_of(rig: Rig, name: str = "okta") -> str:
    return str(rig.ok("/api/scim/tokens/create", {"name": name})["token"])


@pytest.fixture
def corp() -> Corp:
    groups = [
        {"name": "engineers", "projects": [{"name": "main"}]},
        {"name": "leads", "projects": [{"name": "main", "role": "manager"}]},
        {"name": "operators", "admin": True},
    ]
    return Corp(groups=groups)


@pytest.fixture
def okta(tmp_path: Path, corp: Corp) -> Directory:
    rig = at(tmp_path, corp)
    return Directory(rig, token_of(rig))


def user(directory: Directory, user_id: str) -> User:
    found = nouns.find(directory.rig.world.plane.store, User, keys.user(user_id))
    assert found is not None
    return found


def role(directory: Directory, user_id: str) -> ProjectRole | None:
    rig = directory.rig
    found = nouns.find(rig.world.plane.store, Member, keys.member(rig.project.id, user_id))
    return None if found is None else found.role


def events(directory: Directory, project_id: str = EVERYWHERE) -> list[Event]:
    records = every(directory.rig.world.plane.store, keys.events_of(project_id), "0")
    return [nouns.read(Event, record) for record in records]


def me(directory: Directory, token: str) -> int:
    return directory.rig.call("/api/users/get_my_user", token=token).status


# --- Okta -------------------------------------------------------------------------------------------------------------


def test_okta_makes_a_user_changes_them_and_lets_them_go(okta: Directory) -> None:
    assert okta.found("Users", 'userName eq "ana@example.com"') == []
    made = okta.ok("POST", "Users", ANA)
    assert made["name"] == {"givenName": "Ana", "familyName": "Silva", "formatted": "Ana Silva"}
    assert made["externalId"] == ANA["externalId"]
    assert "password" not in made
    url = f"Users/{made['id']}"
    assert okta.ok("GET", url) == made == okta.found("Users", 'userName eq "Ana@Example.com"')[0]
    assert (
        okta.ok("PUT", url, {**made, "name": {"givenName": "Ana", "familyName": "Costa"}})["name"]["familyName"]
        == "Costa"
    )
    gone = okta.patch(url, {"op": "replace", "value": {"active": False}})
    assert gone["active"] is False
    assert user(okta, made["id"]).name == "ana"
    assert not user(okta, made["id"]).active
    assert okta.patch(url, {"op": "replace", "value": {"active": True}})["active"] is True


def test_okta_sees_pages_and_how_many_there_are(okta: Directory) -> None:
    ids = [okta.person(f"user{number}") for number in range(5)]
    first = okta.ok("GET", "Users?startIndex=1&count=2")
    assert (first["totalResults"], first["itemsPerPage"], first["startIndex"]) == (6, 2, 1)
    rest = okta.ok("GET", "Users?startIndex=3&count=9999")
    assert (rest["itemsPerPage"], rest["startIndex"]) == (4, 3)
    assert {each["id"] for each in first["Resources"] + rest["Resources"]} >= set(ids)
    assert okta.ok("GET", "Users?count=0")["Resources"] == []
    assert okta.ok("GET", "Users?startIndex=-3&count=-1")["startIndex"] == 1
    assert okta.ok("GET", "Users?startIndex=7")["Resources"] == []
    assert okta.refused("GET", "Users?count=many")[:2] == (400, "invalidValue")


def test_okta_pushes_a_group_and_its_members_get_the_groups_role(okta: Directory) -> None:
    ana, bob = okta.person("ana"), okta.person("bob")
    assert okta.found("Groups", 'displayName eq "engineers"') == []
    group = okta.group("engineers", ana)
    assert (role(okta, ana), role(okta, bob)) == (ProjectRole.user, None)
    url = f"Groups/{group}"
    okta.patch(url, {"op": "replace", "value": {"id": group, "displayName": "engineers"}})
    okta.patch(url, {"op": "add", "path": "members", "value": [{"value": bob, "display": "bob"}]})
    assert (role(okta, ana), role(okta, bob)) == (ProjectRole.user, ProjectRole.user)
    okta.patch(url, {"op": "remove", "path": f'members[value eq "{ana}"]'})
    assert (role(okta, ana), role(okta, bob)) == (None, ProjectRole.user)
    okta.ok("PUT", url, {"schemas": [GROUP], "displayName": "leads", "members": [{"value": ana}, {"value": bob}]})
    assert (role(okta, ana), role(okta, bob)) == (ProjectRole.manager, ProjectRole.manager)
    okta.ok("DELETE", url)
    assert (role(okta, ana), role(okta, bob)) == (None, None)
    assert okta.refused("GET", url)[0] == 404


# --- Entra ------------------------------------------------------------------------------------------------------------


def test_entra_tests_the_connection_with_a_user_who_is_not_there(okta: Directory) -> None:
    assert okta.found("Users", 'userName eq "7a2d4b9e-0000-4000-8000-000000000000"') == []


def test_entra_makes_a_user_and_changes_them_with_paths_in_capitals(okta: Directory) -> None:
    made = okta.ok(
        "POST",
        "Users",
        {
            "schemas": [USER, "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"],
            "externalId": "bruno",
            "userName": "bruno@corp.onmicrosoft.com",
            "active": "True",
            "emails": [{"primary": True, "type": "work", "value": "bruno@example.com"}],
            "meta": {"resourceType": "User"},
            "name": {"formatted": "Bruno Lima", "familyName": "Lima", "givenName": "Bruno"},
            "roles": [],
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": {"department": "Sales"},
        },
    )
    url = f"Users/{made['id']}"
    assert okta.found("Users", 'externalId eq "bruno"')[0]["id"] == made["id"]
    assert okta.found("Users", 'externalId eq "Bruno"') == []
    changed = okta.patch(
        url,
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "b.lima@example.com"},
        {"op": "Replace", "path": "name.familyName", "value": "Lima Souza"},
        {"op": "Add", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department", "value": "IT"},
        {"op": "Add", "path": 'phoneNumbers[type eq "mobile"].value', "value": "+55 11 5555"},
    )
    assert changed["emails"] == [{"value": "b.lima@example.com", "type": "work", "primary": True}]
    assert changed["name"]["familyName"] == "Lima Souza"
    assert user(okta, made["id"]).email == "b.lima@example.com"
    assert okta.patch(url, {"op": "Replace", "path": "active", "value": "False"})["active"] is False
    assert okta.ok("DELETE", url) is None
    assert okta.refused("GET", url)[0] == 404
    assert okta.found("Users", 'externalId eq "bruno"') == []
    assert okta.person("bruno@corp.onmicrosoft.com") != made["id"]


def test_entra_moves_members_with_values_and_asks_without_members(okta: Directory) -> None:
    ana, bob = okta.person("ana"), okta.person("bob")
    group = okta.group("engineers")
    url = f"Groups/{group}"
    okta.patch(url, {"op": "Add", "path": "members", "value": [{"$ref": None, "value": ana}, {"value": bob}]})
    assert len(okta.found("Groups", f'id eq "{group}" and members eq "{ana}"')) == 1
    okta.patch(url, {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": ana}]})
    assert (role(okta, ana), role(okta, bob)) == (None, ProjectRole.user)
    assert okta.found("Groups", f'id eq "{group}" and members eq "{ana}"') == []
    (listed,) = okta.ok("GET", 'Groups?excludedAttributes=members&filter=displayName eq "engineers"')["Resources"]
    assert "members" not in listed
    assert [each["value"] for each in okta.ok("GET", url)["members"]] == [bob]


# --- who is who -------------------------------------------------------------------------------------------------------


def test_who_is_made_by_scim_is_the_same_user_when_they_sign_on(okta: Directory, corp: Corp) -> None:
    made = okta.ok("POST", "Users", ANA)
    corp.set_identity("ana.silva", subject="1", email="Ana@example.com")
    assert entered(okta.rig)["id"] == made["id"]


def test_who_signs_on_with_the_id_that_the_directory_sends_is_its_user(tmp_path: Path) -> None:
    corp = Corp(external_id_claim="oid")
    rig = at(tmp_path, corp)
    entra = Directory(rig, token_of(rig))
    made, other = entra.person("ana@example.com", externalId="a-1"), entra.person("bob@example.com", externalId="b-1")
    corp.codes["code"] = {"sub": "b-1", "oid": "a-1", "preferred_username": "ana@example.com"}
    assert entered(rig)["id"] == made
    corp.codes["code"] = {"sub": "a-1", "preferred_username": "carla"}
    assert entered(rig)["id"] not in (made, other)


def test_an_address_that_nobody_verified_takes_nobody_over(okta: Directory, corp: Corp) -> None:
    made = okta.ok("POST", "Users", ANA)
    corp.codes["code"] = {"sub": "9", "preferred_username": "ana", "email": "ana@example.com"}
    assert entered(okta.rig)["id"] != made["id"]


def test_a_user_who_signed_on_before_is_found_and_adopted(okta: Directory, corp: Corp) -> None:
    corp.set_identity("ana", subject="1", email="ana@example.com")
    before = entered(okta.rig)
    (found,) = okta.found("Users", 'userName eq "ana@example.com"')
    assert found["id"] == before["id"]
    assert okta.refused("POST", "Users", ANA)[:2] == (409, "uniqueness")
    adopted = okta.ok("PUT", f"Users/{found['id']}", ANA)
    assert (adopted["id"], adopted["externalId"]) == (before["id"], ANA["externalId"])
    assert okta.found("Users", f'externalId eq "{ANA["externalId"]}"') == [adopted]


def test_two_of_one_name_get_two_names_and_two_of_one_user_name_are_refused(okta: Directory) -> None:
    first, second = okta.person("ana@a.example"), okta.person("ana@b.example")
    assert (user(okta, first).name, user(okta, second).name) == ("ana", "ana-2")
    assert okta.refused("POST", "Users", {"userName": "ANA@a.example"})[:2] == (409, "uniqueness")
    assert okta.refused("PUT", f"Users/{second}", {"userName": "ana@a.example"})[:2] == (409, "uniqueness")
    taken = {"userName": "x", "emails": [{"value": "ana@c.example"}]}
    okta.ok("POST", "Users", taken)
    assert okta.refused("POST", "Users", {**taken, "userName": "y"})[:2] == (409, "uniqueness")


def test_a_name_that_leaves_nothing_is_refused_with_the_reason(okta: Directory) -> None:
    status, kind, detail = okta.refused("POST", "Users", {"userName": "Ω@example.com"})
    assert (status, kind) == (400, "invalidValue")
    assert "a name has letters, digits, - and _" in detail


def test_a_new_user_name_leaves_the_users_name(okta: Directory) -> None:
    ana = okta.person("ana@example.com")
    okta.ok("PUT", f"Users/{ana}", {"userName": "ana.costa@example.com"})
    assert user(okta, ana).name == "ana"
    assert okta.found("Users", 'userName eq "ana@example.com"') == []
    assert okta.person("ana@example.com") != ana


# --- who has left -----------------------------------------------------------------------------------------------------


def test_who_is_deactivated_loses_every_token_at_once_and_gets_none_back(okta: Directory, corp: Corp) -> None:
    made = okta.ok("POST", "Users", ANA)
    url = f"Users/{made['id']}"
    corp.set_identity("ana", subject="1", email="ana@example.com")
    session = entered(okta.rig)["creds"]["token"]
    own = okta.rig.ok("/api/users/refresh_token", {"username": "ana"})["creds"]["token"]
    session = entered(okta.rig)["creds"]["token"]
    access = okta.rig.ok("/api/users/access_tokens/create", {"name": "ci", "verbs": ["read"]}, token=own)["token"]
    assert [me(okta, each) for each in (own, session, access)] == [200, 200, 200]
    okta.patch(url, {"op": "replace", "value": {"active": False}})
    assert [me(okta, each) for each in (own, session, access)] == [403, 403, 403]
    assert "deactivated" in okta.rig.refused("/api/auth/corp/callback", callback(okta))
    okta.patch(url, {"op": "replace", "value": {"active": True}})
    assert [me(okta, each) for each in (own, session, access)] == [403, 403, 403]
    assert me(okta, entered(okta.rig)["creds"]["token"]) == 200


def callback(okta: Directory) -> dict[str, Any]:
    from tests.api.test_sign_on import begun

    return {"code": "code", "state": begun(okta.rig)["state"], "base_url": None}


def test_a_leaver_stays_away_if_a_directory_does_not_say_whether_they_are_active(okta: Directory) -> None:
    ana = okta.person("ana")
    okta.patch(f"Users/{ana}", {"op": "replace", "value": {"active": False}})
    assert okta.ok("PUT", f"Users/{ana}", {"userName": "ana", "displayName": "Ana"})["active"] is False


def test_the_runs_of_who_is_deactivated_go_on(okta: Directory, corp: Corp) -> None:
    made = okta.ok("POST", "Users", ANA)
    okta.group("engineers", made["id"])
    corp.set_identity("ana", subject="1", email="ana@example.com")
    plan = {"plan": {"run_spec": task(), "current_resource": None}, "force": False}
    run = okta.rig.ok("P/runs/apply", plan, token=entered(okta.rig)["creds"]["token"])
    okta.patch(f"Users/{made['id']}", {"op": "replace", "value": {"active": False}})
    seen = okta.rig.ok("P/runs/get", {"run_name": run["run_spec"]["run_name"]})
    assert (seen["user"], seen["status"], seen["stopped_by"]) == ("ana", run["status"], None)


def test_the_last_admin_can_be_neither_deactivated_nor_deleted(okta: Directory) -> None:
    (admin,) = okta.found("Users", 'userName eq "admin"')
    url = f"Users/{admin['id']}"
    status, _, detail = okta.refused("PATCH", url, {"Operations": [{"op": "replace", "value": {"active": False}}]})
    assert (status, "only active global admin" in detail) == (409, True)
    assert okta.refused("DELETE", url)[0] == 409
    assert me(okta, ADMIN) == 200


def test_who_owns_a_project_is_deactivated_where_they_cannot_be_deleted(okta: Directory, corp: Corp) -> None:
    made = okta.ok("POST", "Users", ANA)
    corp.set_identity("ana", subject="1", email="ana@example.com")
    okta.rig.ok("/api/projects/create", {"project_name": "own"}, token=entered(okta.rig)["creds"]["token"])
    status, _, detail = okta.refused("DELETE", f"Users/{made['id']}")
    assert (status, detail) == (409, "ana owns the project own. Delete the project first.")
    assert not user(okta, made["id"]).active


# --- groups -----------------------------------------------------------------------------------------------------------


def test_the_strongest_role_of_several_groups_wins_and_the_weaker_one_comes_back(okta: Directory) -> None:
    ana = okta.person("ana")
    okta.group("engineers", ana)
    leads = okta.group("leads", ana)
    assert role(okta, ana) is ProjectRole.manager
    okta.ok("DELETE", f"Groups/{leads}")
    assert role(okta, ana) is ProjectRole.user


def test_a_role_that_a_person_gave_stays(okta: Directory) -> None:
    ana = okta.person("ana")
    settings = [{"username": "ana", "project_role": "manager"}]
    okta.rig.ok(f"/api/projects/{okta.rig.project.name}/add_members", {"members": settings})
    group = okta.group("engineers", ana)
    assert role(okta, ana) is ProjectRole.manager
    okta.ok("DELETE", f"Groups/{group}")
    assert role(okta, ana) is ProjectRole.manager


def test_a_group_without_a_row_in_the_servers_file_gives_nothing(okta: Directory) -> None:
    ana = okta.person("ana")
    group = okta.group("everyone", ana)
    assert role(okta, ana) is None
    assert okta.ok("GET", f"Groups/{group}")["members"] == [{"value": ana, "type": "User"}]


def test_a_group_makes_global_admins_and_takes_that_back(okta: Directory) -> None:
    ana = okta.person("ana")
    group = okta.group("operators", ana)
    assert user(okta, ana).role is GlobalRole.admin
    okta.patch(f"Groups/{group}", {"op": "remove", "path": "members"})
    assert user(okta, ana).role is GlobalRole.user


@pytest.mark.slow
def test_many_members_get_their_role(okta: Directory) -> None:
    ids = [okta.person(f"user{number}") for number in range(60)]
    group = okta.group("engineers", *ids)
    assert {role(okta, each) for each in ids} == {ProjectRole.user}
    okta.ok("PUT", f"Groups/{group}", {"displayName": "engineers", "members": []})
    assert {role(okta, each) for each in ids} == {None}


def test_who_is_deleted_is_in_no_group(okta: Directory) -> None:
    ana = okta.person("ana")
    group = okta.group("engineers", ana)
    okta.ok("DELETE", f"Users/{ana}")
    assert okta.ok("GET", f"Groups/{group}")["members"] == []


def test_members_are_users_who_exist_and_names_are_taken_once(okta: Directory) -> None:
    status, kind, detail = okta.refused("POST", "Groups", {"displayName": "x", "members": [{"value": "nobody"}]})
    assert (status, kind) == (400, "invalidValue")
    assert "'nobody'" in detail
    okta.group("x")
    assert okta.refused("POST", "Groups", {"displayName": "x"})[:2] == (409, "uniqueness")


# --- tokens and errors ------------------------------------------------------------------------------------------------


def test_nobody_gets_in_without_a_scim_token_and_nobody_gets_anywhere_else_with_one(okta: Directory) -> None:
    for token in (None, "forged", ADMIN):
        for path in ("Users", "Users/x", "Groups", "ServiceProviderConfig", "Schemas"):
            assert Directory(okta.rig, token).refused("GET", path)[0] == 401
    assert okta.token is not None
    assert okta.rig.call("/api/users/list", {}, token=okta.token).status == 403


def test_a_token_is_listed_without_its_text_stored_as_a_hash_and_ends_when_it_is_revoked(okta: Directory) -> None:
    (listed,) = okta.rig.ok("/api/scim/tokens/list")
    assert (listed["name"], listed["created_by"], "token" in listed) == ("okta", "admin", False)
    assert okta.token is not None
    stored = b"".join(record.body for record in okta.rig.world.plane.store.scan(limit=10_000))
    assert okta.token.encode() not in stored
    assert "There is a SCIM token 'okta' already" in okta.rig.refused("/api/scim/tokens/create", {"name": "okta"})
    okta.rig.ok("/api/scim/tokens/revoke", {"name": "okta"})
    assert okta.refused("GET", "Users")[0] == 401
    assert okta.rig.ok("/api/scim/tokens/list") == []
    assert "There is no SCIM token 'okta'" in okta.rig.refused("/api/scim/tokens/revoke", {"name": "okta"})


def test_the_history_says_which_token_did_it(okta: Directory) -> None:
    ana = okta.person("ana")
    okta.group("engineers", ana)
    okta.patch(f"Users/{ana}", {"op": "replace", "value": {"active": False}})
    okta.ok("DELETE", f"Users/{ana}")
    own = [each for each in events(okta) if each.actor_name == "(scim)"]
    assert {(each.type.value, each.actor_token) for each in own} == {
        (kind, "okta") for kind in ("created", "changed", "deleted")
    }
    (given,) = [each for each in events(okta, okta.rig.project.id) if each.type == "members_changed"]
    assert (given.actor_name, given.actor_token) == ("(scim)", "okta")


def test_what_there_is_can_be_read(okta: Directory) -> None:
    assert okta.ok("GET", "ServiceProviderConfig")["patch"]["supported"] is True
    assert [each["id"] for each in okta.ok("GET", "ResourceTypes")["Resources"]] == ["User", "Group"]
    assert okta.ok("GET", "ResourceTypes/User")["schema"] == USER
    names = [each["name"] for each in okta.ok("GET", f"Schemas/{USER}")["attributes"]]
    assert names == ["userName", "externalId", "name", "displayName", "emails", "active"]
    assert okta.refused("GET", "Schemas/x")[0] == 404


@pytest.mark.parametrize(
    ("method", "url", "body", "status", "kind"),
    [
        ("GET", 'Users?filter=userName co "a"', None, 400, "invalidFilter"),
        ("GET", 'Users?filter=nickName eq "a"', None, 400, "invalidFilter"),
        ("GET", "Users/none", None, 404, None),
        ("GET", "Nothing", None, 404, None),
        ("PUT", "Users", {}, 405, None),
        ("POST", "Users", b"{", 400, "invalidSyntax"),
        ("POST", "Users", b"[]", 400, "invalidSyntax"),
        ("POST", "Users", {}, 400, "invalidValue"),
        ("POST", "Users", {"userName": 5}, 400, "invalidValue"),
        ("POST", "Users", {"userName": "x" * 400}, 400, "invalidValue"),
        ("POST", "Users", {"userName": "a", "active": "perhaps"}, 400, "invalidValue"),
        ("POST", "Users", {"userName": "a", "emails": "a@b"}, 400, "invalidValue"),
        ("POST", "Groups", {"displayName": "a", "members": ["x"]}, 400, "invalidValue"),
        ("POST", "Users", b'{"x": "' + b"a" * 10_000_000 + b'"}', 413, None),
    ],
)
def test_what_is_wrong_is_said_as_scim_says_it(
    okta: Directory, method: str, url: str, body: Any, status: int, kind: str | None
) -> None:
    assert okta.refused(method, url, body)[:2] == (status, kind)
