"""Signing on, with a scripted provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from chalicelib.api import dispatch
from chalicelib.domain import keys
from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.domain.tenants import hash_token
from chalicelib.errors import Conflict, Forbidden, Refused
from chalicelib.store.port import Put
from chalicelib.usecases.context import DeviceCode
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.people.users import named_user, refresh_token
from chalicelib.usecases.services import doors
from tests.api.rig import ADMIN, Rig

DAY = 86_400


class Corp:
    """`codes`: what each code's account is said to be."""

    def __init__(self, **rules: Any) -> None:
        written = {"name": "corp", "issuer": "https://login.example.com", "client_id": "dstack", **rules}
        self.rules = SignOnProvider.model_validate(written)
        self.codes: dict[str, Mapping[str, Any]] = {}
        self.typed = False

    def address(self, redirect: str, state: str, nonce: str, verifier: str) -> str:
        return f"https://login.example.com/?redirect={redirect}&state={state}&nonce={nonce}"

    def account(self, code: str, redirect: str, nonce: str, verifier: str) -> Mapping[str, Any]:
        if code not in self.codes:
            raise Refused("The provider corp didn't let you sign on: invalid_grant.")
        return self.codes[code]

    def device(self) -> DeviceCode:
        return DeviceCode("device", "ABCD", "https://login.example.com/device", "", 5, 600)

    def device_account(self, device_code: str) -> Mapping[str, Any] | None:
        return self.codes["device"] if self.typed else None

    def set_identity(self, name: str = "ann", *groups: str, subject: str = "", email: str = "") -> None:
        address = {"email": email, "email_verified": True} if email else {}
        self.codes["code"] = {"sub": subject or name, "preferred_username": name, "groups": groups, **address}
        self.codes["device"] = self.codes["code"]


def at(folder: Path, corp: Corp) -> Rig:
    return Rig.at(folder, sign_on={"corp": corp})


@pytest.fixture
def corp() -> Corp:
    return Corp()


@pytest.fixture
def desk(tmp_path: Path, corp: Corp) -> Rig:
    corp.set_identity()
    return at(tmp_path, corp)


def begun(rig: Rig, **params: Any) -> dict[str, str]:
    address = rig.ok("/api/auth/corp/authorize", params or {"local_port": 4000})["authorization_url"]
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def entered(rig: Rig) -> Any:
    return rig.ok("/api/auth/corp/callback", {"code": "code", "state": begun(rig)["state"], "base_url": None})


# --- the way ----------------------------------------------------------------------------------------------------------


def test_providers_are_listed_by_name(desk: Rig, tmp_path: Path) -> None:
    assert desk.ok("/api/auth/list_providers") == [{"name": "corp", "enabled": True}]


@pytest.mark.parametrize(
    ("providers", "hint"),
    [(["corp", "home"], "Providers here: corp, home."), ([], "Use `dstack project add` with a token.")],
)
def test_who_names_another_is_told_what_there_is(tmp_path: Path, providers: list[str], hint: str) -> None:
    rig = Rig.at(tmp_path, sign_on={name: Corp(name=name) for name in providers})
    refused = rig.refused("/api/auth/acme/authorize", {"local_port": 4000})
    assert refused == f"Nobody can sign on with 'acme' here. {hint}"


@pytest.mark.parametrize(
    ("rules", "params", "redirect"),
    [
        ({}, {"local_port": 4000, "base_url": None}, "http://localhost:4000/auth/callback"),
        ({}, {"local_port": None, "base_url": "https://plane.example/"}, "https://plane.example/auth/corp/callback"),
        ({}, {"base_url": "http://127.0.0.1:3000"}, "http://127.0.0.1:3000/auth/corp/callback"),
        ({"redirect_url": "https://c.example/cb"}, {"local_port": 4000}, "https://c.example/cb"),
    ],
)
def test_the_browser_comes_back_to_where_it_was_sent_from(
    tmp_path: Path, rules: dict[str, Any], params: dict[str, Any], redirect: str
) -> None:
    assert begun(at(tmp_path, Corp(**rules)), **params)["redirect"] == redirect


def test_nobody_is_sent_nowhere(desk: Rig) -> None:
    assert "browser should return" in desk.refused("/api/auth/corp/authorize", {"base_url": None})


@pytest.mark.parametrize(
    "base",
    ["https://evil.example", "https://plane.example.evil.example", "http://plane.example", "https://plane.example:444"],
)
def test_no_browser_is_sent_where_only_the_caller_says(desk: Rig, tmp_path: Path, base: str) -> None:
    """Whoever follows such a link would sign on for whoever made it."""
    refused = desk.refused("/api/auth/corp/authorize", {"base_url": base})
    assert "isn't an address of this control plane" in refused
    assert f"redirect_url: {base}/auth/corp/callback" in refused
    (tmp_path / "fixed").mkdir()
    fixed = at(tmp_path / "fixed", Corp(redirect_url="https://c.example/cb"))
    assert begun(fixed, base_url=base)["redirect"] == "https://c.example/cb", "whoever asks"


def cookie_of(rig: Rig) -> tuple[str, list[str]]:
    """What a browser that begins is sent: the `state`, and the parts of its cookie."""
    raw = orjson.dumps({"base_url": "https://plane.example"})
    found = dispatch.answer(rig.world.plane, dispatch.Request("POST", "/api/auth/corp/authorize", body=raw))
    (state,) = parse_qs(urlsplit(orjson.loads(found.body)["authorization_url"]).query)["state"]
    return state, found.headers["Set-Cookie"].split("; ")


def test_only_the_browser_that_began_can_finish(desk: Rig) -> None:
    """Else somebody who has signed on could have another's browser finish it, and see what is done there."""
    (state, (cookie, *rest)), (_, (other, *_)) = cookie_of(desk), cookie_of(desk)
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Max-Age=600"} <= set(rest)
    came = {"code": "code", "state": state}
    for wrong in ("", other, "dstack-sign-on="):
        reply = desk.call("/api/auth/corp/callback", came, token=None, cookie=wrong)
        assert reply.status == 400 and "begun in another browser" in reply.json["detail"][0]["msg"]
    reply = desk.call("/api/auth/corp/callback", came, token=None, cookie=f"a=b; {cookie}")
    assert reply.json["username"] == "ann"


def test_a_console_learns_where_to_send_the_browser_on(desk: Rig) -> None:
    local, own = begun(desk), begun(desk, base_url="https://plane.example")
    next_url = lambda state: desk.ok("/api/auth/get_next_redirect", {"code": "c/1", "state": state})["redirect_url"]  # noqa: E731
    assert next_url(local["state"]).startswith("http://localhost:4000/auth/callback?code=c%2F1&state=v1.")
    assert next_url(own["state"]) is None


def test_the_state_shows_nothing_and_lasts_ten_minutes(desk: Rig) -> None:
    given = begun(desk)
    assert given["nonce"] not in given["state"] and "localhost" not in given["state"]
    desk.world.clock.pass_(601)
    assert "too long" in desk.refused("/api/auth/corp/callback", {"code": "code", "state": given["state"]})


@pytest.mark.parametrize("state", ["", "x", "v1.", "v1.AAAA", "v1." + "A" * 80])
def test_a_made_up_state_is_refused(desk: Rig, state: str) -> None:
    assert "didn't begin here" in desk.refused("/api/auth/corp/callback", {"code": "code", "state": state})


def test_a_state_is_for_one_way_and_one_provider(tmp_path: Path) -> None:
    one, two = Corp(), Corp(name="two")
    rig = Rig.at(tmp_path, sign_on={"corp": one, "two": two})
    code = rig.ok("/api/auth/corp/device")["state"]
    assert "another provider" in rig.refused("/api/auth/corp/callback", {"code": "code", "state": code})
    assert "another provider" in rig.refused("/api/auth/two/device_token", {"state": code})
    assert "another provider" in rig.refused("/api/auth/corp/device_token", {"state": begun(rig)["state"]})


def test_nothing_is_stored_for_somebody_who_isnt_known(desk: Rig) -> None:
    before = len(desk.world.store.scan())
    begun(desk)
    desk.ok("/api/auth/corp/device")
    desk.refused("/api/auth/corp/callback", {"code": "wrong", "state": begun(desk)["state"]})
    assert len(desk.world.store.scan()) == before


def test_a_code_typed_elsewhere(desk: Rig, corp: Corp) -> None:
    given = desk.ok("/api/auth/corp/device")
    assert (given["user_code"], given["interval"], given["verification_uri_complete"]) == ("ABCD", 5, None)
    assert desk.ok("/api/auth/corp/device_token", {"state": given["state"]}) is None
    corp.typed = True
    assert desk.ok("/api/auth/corp/device_token", {"state": given["state"]})["username"] == "ann"


# --- the token --------------------------------------------------------------------------------------------------------


def test_each_sign_on_is_a_token_of_its_own_for_the_same_user(desk: Rig) -> None:
    first, second = entered(desk), entered(desk)
    assert first["id"] == second["id"] and first["creds"] != second["creds"]
    for each in (first, second):
        assert desk.ok("/api/users/get_my_user", token=each["creds"]["token"])["username"] == "ann"


def test_it_lasts_as_long_as_the_provider_says(tmp_path: Path) -> None:
    corp = Corp(session="2d")
    corp.set_identity()
    rig = at(tmp_path, corp)
    token = entered(rig)["creds"]["token"]
    rig.world.clock.pass_(2 * DAY - 5)
    assert rig.call("/api/users/get_my_user", token=token).status == 200
    rig.ok("/api/projects/main/add_members", {"members": [{"username": "ann", "project_role": "user"}]})
    verdict = doors.member(rig.world.plane, token, "main")
    assert verdict.allowed and 0 < (verdict.ends_in or 0) <= 5, "so that doors don't go by it for longer"
    rig.world.clock.pass_(10)
    assert rig.call("/api/users/get_my_user", token=token).status == 403


def test_a_new_token_ends_all_sign_ons_and_no_other_users(desk: Rig, corp: Corp) -> None:
    tokens = [entered(desk)["creds"]["token"] for _ in range(2)]
    corp.set_identity("bob")
    other = entered(desk)["creds"]["token"]
    own = desk.ok("/api/users/refresh_token", {"username": "ann"}, token=tokens[0])["creds"]["token"]
    assert [desk.call("/api/users/get_my_user", token=each).status for each in (*tokens, own, other)] == [
        403,
        403,
        200,
        200,
    ]


def test_a_token_that_was_asked_for_with_a_sign_on_ends_with_it(tmp_path: Path) -> None:
    """Or a week at the provider would be for ever here."""
    corp = Corp(session="2d")
    corp.set_identity()
    rig = at(tmp_path, corp)
    token = entered(rig)["creds"]["token"]
    rig.world.clock.pass_(DAY)
    for _ in range(2):
        token = rig.ok("/api/users/refresh_token", {"username": "ann"}, token=token)["creds"]["token"]
        assert rig.call("/api/users/get_my_user", token=token).status == 200
    rig.world.clock.pass_(DAY + 1)
    assert rig.call("/api/users/get_my_user", token=token).status == 403


def test_a_token_that_was_replaced_meanwhile_gets_no_other(desk: Rig) -> None:
    ann = named_user(desk.world.store, entered(desk)["username"])
    with pytest.raises(Forbidden):
        refresh_token(desk.world.plane, ann, "ann", hash_token("replaced"))


def test_an_admin_hands_out_a_token_that_lasts(desk: Rig) -> None:
    signed_on = entered(desk)["creds"]["token"]
    token = desk.ok("/api/users/refresh_token", {"username": "ann"})["creds"]["token"]
    assert desk.call("/api/users/get_my_user", token=signed_on).status == 403
    desk.world.clock.pass_(400 * DAY)
    for _ in range(2):
        assert desk.call("/api/users/get_my_user", token=token).status == 200
        token = desk.ok("/api/users/refresh_token", {"username": "ann"}, token=token)["creds"]["token"]


def test_a_sign_on_that_no_index_showed_ends_with_the_others(desk: Rig) -> None:
    token, store = entered(desk)["creds"]["token"], desk.world.store
    records = [record for record in store.scan() if record.key.pk == f"token/{hash_token(token)}"]
    desk.world.clock.pass_(1)
    desk.ok("/api/users/refresh_token", {"username": "ann"})
    store.commit([Put(replace(record, version=1), expect=0) for record in records])
    assert len(records) == 2 and desk.call("/api/users/get_my_user", token=token).status == 403


def test_a_first_sign_on_makes_no_host_ask_for_keys(desk: Rig) -> None:
    before = desk.world.store.get(keys.rights())
    entered(desk)
    assert desk.world.store.get(keys.rights()) == before


def test_a_user_who_was_deleted_begins_anew_with_nothing(desk: Rig) -> None:
    first = entered(desk)
    desk.ok("/api/users/delete", {"users": ["ann"]})
    assert desk.call("/api/users/get_my_user", token=first["creds"]["token"]).status == 403
    second = entered(desk)
    assert second["username"] == "ann" and second["id"] != first["id"]


def test_only_a_hash_is_stored(desk: Rig) -> None:
    token = entered(desk)["creds"]["token"]
    assert token and not any(token.encode() in record.body for record in desk.world.store.scan())


# --- who it is --------------------------------------------------------------------------------------------------------


def test_an_account_never_becomes_a_user_who_was_there(desk: Rig, corp: Corp) -> None:
    desk.ok("/api/users/update", {"username": "admin", "global_role": "admin", "email": "admin@example.com"})
    corp.set_identity("admin", email="admin@example.com")
    assert entered(desk)["username"] == "admin-2" and entered(desk)["global_role"] == "user"


def test_a_verified_address_takes_over_its_user_where_the_operator_wants_that(tmp_path: Path) -> None:
    corp = Corp(existing_users="email")
    rig = at(tmp_path, corp)
    ann = rig.ok("/api/users/create", {"username": "ann", "global_role": "user", "email": "Ann@example.com"})
    corp.set_identity("a.nn", email="ann@example.com")
    assert entered(rig)["id"] == ann["id"]
    corp.set_identity("a.nn")
    assert entered(rig)["id"] == ann["id"]  # from now on it is the account, whatever its address
    for name in ("bob", "bert"):
        rig.ok("/api/users/create", {"username": name, "global_role": "user", "email": "b@example.com"})
    corp.set_identity("b", email="b@example.com")
    state = begun(rig)["state"]
    assert "Several users" in rig.refused("/api/auth/corp/callback", {"code": "code", "state": state})
    corp.set_identity("cleo")
    assert entered(rig)["username"] == "cleo", "without an address it takes over nobody"


def test_who_may_not_sign_on_becomes_no_user(tmp_path: Path) -> None:
    corp = Corp(email_domains=["example.com"])
    rig = at(tmp_path, corp)
    corp.set_identity("ann", email="ann@example.org")
    error = rig.refused("/api/auth/corp/callback", {"code": "code", "state": begun(rig)["state"]})
    assert error.startswith("Accounts of example.org may not sign on here.")
    assert [each["username"] for each in rig.ok("/api/users/list")] == ["admin"]


def test_the_same_account_twice_at_once_is_one_user(desk: Rig) -> None:
    store, real, beaten = desk.world.store, desk.world.store.commit, [2]

    def commit(changes: Any) -> Any:
        if beaten[0]:
            beaten[0] -= 1
            raise Conflict("user/somebody")
        return real(changes)

    store.commit = commit
    assert entered(desk)["username"] == "ann"


# --- what groups make of them -----------------------------------------------------------------------------------------

GROUPS = [
    {"name": "ops", "admin": True, "projects": [{"name": "main", "role": "admin"}]},
    {"name": "gpu", "projects": [{"name": "main"}, {"name": "gone"}]},
]


def role_in(rig: Rig, name: str) -> str | None:
    members = rig.ok("/api/projects/main/get")["members"]
    return next((each["project_role"] for each in members if each["user"]["username"] == name), None)


def test_groups_are_read_anew_with_every_sign_on(tmp_path: Path) -> None:
    corp = Corp(groups=GROUPS)
    rig = at(tmp_path, corp)
    for groups, role, within in ((["gpu"], "user", "user"), (["ops"], "admin", "admin"), ([], "user", None)):
        corp.set_identity("ann", *groups)
        entered(rig)
        assert (rig.ok("/api/users/get_user", {"username": "ann"})["global_role"], role_in(rig, "ann")) == (
            role,
            within,
        )
    events = rig.ok("/api/events/list", {"include_target_types": ["user"]})
    messages = {each["message"]: each["actor_user"] for each in events if "groups at corp" in each["message"]}
    assert messages == {f"changed: {role}, as groups at corp say": "ann" for role in ("admin", "user")}


def test_whoever_a_group_brings_comes_after_the_others(tmp_path: Path) -> None:
    corp = Corp(groups=GROUPS)
    rig = at(tmp_path, corp)
    for name in ("zoe", "eve", "bob", "ann"):
        corp.set_identity(name, "gpu")
        entered(rig)
    members = rig.ok("/api/projects/main/get")["members"]
    assert [each["user"]["username"] for each in members] == ["admin", "zoe", "eve", "bob", "ann"]


def test_a_group_may_bring_the_first_member(tmp_path: Path) -> None:
    corp = Corp(groups=[{"name": "ops", "projects": [{"name": "empty", "role": "admin"}]}])
    rig = at(tmp_path, corp)
    rig.another_project("empty")
    corp.set_identity("ann", "ops")
    entered(rig)
    assert [each["project_role"] for each in rig.ok("/api/projects/empty/get")["members"]] == ["admin"]


def test_what_a_person_gave_is_left_alone(tmp_path: Path) -> None:
    corp = Corp(groups=GROUPS)
    rig = at(tmp_path, corp)
    corp.set_identity("ann", "gpu")
    entered(rig)
    rig.ok("/api/projects/main/add_members", {"members": [{"username": "ann", "project_role": "manager"}]})
    for groups in (["gpu"], []):
        corp.set_identity("ann", *groups)
        entered(rig)
        assert role_in(rig, "ann") == "manager"


def test_groups_take_the_global_role_only_where_they_gave_it(tmp_path: Path) -> None:
    corp = Corp(groups=GROUPS)
    rig = at(tmp_path, corp)
    role = lambda: rig.ok("/api/users/get_user", {"username": "ann"})["global_role"]  # noqa: E731
    corp.set_identity("ann")
    entered(rig)
    rig.ok("/api/users/update", {"username": "ann", "global_role": "admin"})
    for groups in ([], ["ops"], []):
        corp.set_identity("ann", *groups)
        entered(rig)
        assert role() == "admin", "a person gave it"
    rig.ok("/api/users/update", {"username": "ann", "global_role": "user"})
    corp.set_identity("ann", "ops")
    entered(rig)
    rig.ok("/api/users/update", {"username": "ann", "global_role": "admin", "email": "ann@example.com"})
    assert role() == "admin"
    corp.set_identity("ann")
    entered(rig)
    assert role() == "user", "groups gave it"


def test_the_last_admins_stay(tmp_path: Path) -> None:
    corp = Corp(groups=GROUPS)
    rig = at(tmp_path, corp)
    corp.set_identity("ann", "ops")
    token = entered(rig)["creds"]["token"]
    rig.ok("/api/projects/main/remove_members", {"usernames": ["admin"]}, token=token)
    rig.ok("/api/users/update", {"username": "admin", "global_role": "user"}, token=token)
    corp.set_identity("ann")
    entered(rig)
    me = rig.ok("/api/users/get_my_user", token=token)
    assert (me["global_role"], role_in_as(rig, token)) == ("admin", "admin")


def role_in_as(rig: Rig, token: str) -> str:
    members = rig.ok("/api/projects/main/get", token=token)["members"]
    return str(next(each["project_role"] for each in members if each["user"]["username"] == "ann"))


def test_a_sign_on_is_an_event(desk: Rig) -> None:
    entered(desk)
    messages = [event["message"] for event in desk.ok("/api/events/list", {}, token=ADMIN)]
    assert "signed on with corp" in " ".join(messages).lower()


def test_expired_sign_ons_go_by_themselves(desk: Rig) -> None:
    entered(desk)
    places = [record for record in desk.world.store.scan() if record.key.pk.startswith("token/") and record.expires_at]
    assert len(places) == 2 and {record.key.sk for record in places} == {"sign-on", "user"}


def test_an_access_token_ends_with_its_sign_on_when_that_is_ended_early(desk: Rig) -> None:
    create, stolen = "/api/users/access_tokens/create", entered(desk)["creds"]["token"]
    desk.world.clock.pass_(5)
    made = desk.ok(create, {"name": "ci", "verbs": ["read"]}, token=stolen)["token"]
    assert desk.call("/api/users/get_my_user", token=made).status == 200
    desk.world.clock.pass_(5)
    own = desk.ok("/api/users/refresh_token", {"username": "ann"})["creds"]["token"]
    refused = desk.call("/api/users/get_my_user", token=made)
    assert refused.status == 403 and b"The sign-on with which this access token was made was ended" in refused.body
    ann, store, now = named_user(desk.world.store, "ann"), desk.world.store, desk.world.plane.clock.now()
    assert rights_revision.access_token(store, ann, hash_token(made), now) is None, "nor does it hold a stream open"
    assert desk.ok("/api/users/access_tokens/list", token=own) == []
    lasting = desk.ok(create, {"name": "ci", "verbs": ["read"]}, token=own)["token"]
    desk.ok("/api/users/refresh_token", {"username": "ann"})
    assert desk.call("/api/users/get_my_user", token=lasting).status == 200, "it was made without a sign-on"


def test_an_access_token_that_is_made_with_a_sign_on_ends_with_it(desk: Rig) -> None:
    create, session = "/api/users/access_tokens/create", entered(desk)["creds"]["token"]
    asked = {"name": "ci", "verbs": ["read"]}
    assert "your sign-on ends at" in desk.refused(create, {**asked, "expires_in": 8 * 86_400}, token=session)
    usual = desk.ok(create, asked, token=session)
    assert desk.ok(create, {**asked, "name": "short", "expires_in": 3600}, token=session)
    desk.world.clock.pass_(7 * 86_400 - 10)
    assert desk.call("/api/users/get_my_user", token=usual["token"]).status == 200
    desk.world.clock.pass_(11)
    assert desk.call("/api/users/get_my_user", token=usual["token"]).status == 403
    assert desk.ok(create, {**asked, "expires_in": 8 * 86_400}), "an admin's own token is no sign-on"
