"""A code signs a page in once, within a minute, with no more than its maker's rights, and no longer than they last."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.sign_in_codes import LASTS, MOST_PAGES, SIGNED_IN, SignInCode
from chalicelib.domain.sign_on import SignOn
from chalicelib.domain.tenants import ProjectRole, User, hash_token
from chalicelib.errors import Refused
from chalicelib.store import nouns
from chalicelib.usecases.people import sign_in_codes
from tests.api.rig import ADMIN, Rig, task
from tests.api.test_access_tokens import LIST, REVOKE, forbidden, made
from tests.api.test_races import CALLERS, together

REVOKE_OWN = "/api/users/access_tokens/revoke_own"
CODE, EXCHANGE, ME = "/api/users/sign_in_codes/create", "/api/auth/sign_in_codes/exchange", "/api/users/get_my_user"


def coded(rig: Rig, token: str = ADMIN) -> str:
    return str(rig.ok(CODE, token=token)["code"])


def entered(rig: Rig, code: str) -> Any:
    reply = rig.call(EXCHANGE, {"code": code}, token=None)
    assert reply.status == 200, reply.body
    return reply.json


def refused(rig: Rig, code: str) -> str:
    reply = rig.call(EXCHANGE, {"code": code}, token=None)
    assert reply.status == 400, reply.body
    return str(reply.json["detail"][0]["msg"])


def test_a_page_gets_a_token_that_is_listed_expires_and_can_be_revoked(rig: Rig) -> None:
    page = entered(rig, coded(rig))
    assert page["username"] == "admin" and rig.ok(ME, token=page["token"])["username"] == "admin"
    (listed,) = rig.ok(LIST)
    assert listed == page["access_token"] and listed["name"].startswith("console/")
    assert listed["verbs"] == ["read", "run", "fleets", "project", "server"] and listed["projects"] == []
    rig.ok(REVOKE, {"name": listed["name"]})
    assert "was revoked" in forbidden(rig, ME, token=page["token"])
    later = entered(rig, coded(rig))["token"]
    rig.world.clock.pass_(SIGNED_IN // SECOND + 1)
    assert "expired at" in forbidden(rig, ME, token=later)


def test_a_page_shares_the_dollars_of_the_token_that_opened_it(rig: Rig) -> None:
    text = made(rig, "run", dollars_a_day=5)
    page = entered(rig, coded(rig, text))
    found = [keys.access_token(hash_token(each)) for each in (text, page["token"])]
    own, opened = (nouns.find(rig.world.store, AccessToken, key) for key in found)
    assert own is not None and opened is not None and own.limit is not None and own.limit == opened.limit
    assert page["access_token"]["dollars_a_day"] == 5.0


def test_a_code_works_once(rig: Rig) -> None:
    code = coded(rig)
    entered(rig, code)
    assert "was used already" in refused(rig, code) and len(rig.ok(LIST)) == 1


def test_of_many_who_use_it_at_once_one_is_signed_in(rig: Rig) -> None:
    code = coded(rig)
    replies = together(lambda _: rig.call(EXCHANGE, {"code": code}, token=None))
    assert sorted(reply.status for reply in replies) == [200] + [400] * (CALLERS - 1), replies
    assert len(rig.ok(LIST)) == 1


def test_a_code_ends_after_a_minute(rig: Rig) -> None:
    code, late = coded(rig), coded(rig)
    rig.world.clock.pass_(LASTS // SECOND - 1)
    entered(rig, code)
    rig.world.clock.pass_(1)
    assert "was valid until" in refused(rig, late) and len(rig.ok(LIST)) == 1


def test_the_code_itself_is_not_stored_and_nobody_can_guess_one(rig: Rig) -> None:
    code = coded(rig)
    stored = nouns.find(rig.world.plane.store, SignInCode, keys.sign_in_code(hash_token(code)))
    assert stored is not None and code not in stored.model_dump_json()
    assert "isn't one of this server" in refused(rig, stored.code_hash)


def test_a_page_may_no_more_than_the_token_that_opened_it(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.admin)
    ci = made(rig, "read", token=ann, projects=["main"], expires_in=3600)
    page = entered(rig, coded(rig, ci))
    assert page["access_token"]["verbs"] == ["read"] and page["access_token"]["projects"] == ["main"]
    assert "lacks the verb `run`" in forbidden(rig, "P/runs/get_plan", {"run_spec": task()}, token=page["token"])
    rig.world.clock.pass_(3600)
    assert "expired at" in forbidden(rig, ME, token=page["token"])
    others = entered(rig, coded(rig, ann))
    assert others["access_token"]["verbs"] == ["read", "run", "fleets", "project"], "ann is no global admin"


def test_a_page_ends_with_the_token_that_opened_it(rig: Rig) -> None:
    page, waiting = entered(rig, coded(rig, made(rig, "run")))["token"], coded(rig, made(rig, "run", name="more"))
    rig.ok(REVOKE, {"name": "ci"})
    rig.ok(REVOKE, {"name": "more"})
    assert "with which this one was made was revoked or replaced" in forbidden(rig, ME, token=page)
    assert "no longer valid" in refused(rig, waiting) and rig.ok(LIST) == []


def test_a_page_ends_with_its_users_own_token(rig: Rig) -> None:
    ann = rig.ok("/api/users/create", {"username": "ann", "global_role": "user"})["creds"]["token"]
    page = entered(rig, coded(rig, ann))["token"]
    assert rig.ok(ME, token=page)["username"] == "ann"
    new = rig.ok("/api/users/refresh_token", {"username": "ann"}, token=ann)["creds"]["token"]
    assert "was revoked or replaced" in forbidden(rig, ME, token=page)
    assert rig.ok(LIST, token=new) == []
    assert rig.ok(ME, token=entered(rig, coded(rig, new))["token"])["username"] == "ann"


def test_a_page_that_signs_out_ends_its_token(rig: Rig) -> None:
    page, other = (entered(rig, coded(rig))["token"] for _ in range(2))
    rig.ok(REVOKE_OWN, token=page)
    assert "was revoked" in forbidden(rig, ME, token=page)
    assert rig.ok(ME, token=other)["username"] == "admin" and len(rig.ok(LIST)) == 1


def test_an_access_token_ends_itself_even_if_it_is_for_one_project(rig: Rig) -> None:
    ci = made(rig, "read", projects=["main"])
    page = entered(rig, coded(rig, ci))["token"]
    rig.ok(REVOKE_OWN, token=ci)
    assert "was revoked" in forbidden(rig, ME, token=ci) and "or replaced" in forbidden(rig, ME, token=page)
    assert rig.ok(LIST) == []
    assert "Replace that one" in rig.refused(REVOKE_OWN)


def test_a_code_of_a_user_who_lost_their_token_or_rights_is_void(rig: Rig) -> None:
    ann = rig.ok("/api/users/create", {"username": "ann", "global_role": "user"})["creds"]["token"]
    before = coded(rig, ann)
    new = rig.ok("/api/users/refresh_token", {"username": "ann"})["creds"]["token"]
    assert "no longer valid" in refused(rig, before)
    after = coded(rig, new)
    rig.deactivate("ann")
    assert "deactivated" in refused(rig, after)


def test_a_page_of_somebody_who_signed_on_ends_with_that(rig: Rig) -> None:
    rig.user("ann", ProjectRole.user)
    now = rig.world.clock.now()
    found = nouns.find_target(rig.world.plane.store, keys.user_name("ann"))
    assert found is not None
    sign_on = SignOn(user_id=found[0], token_hash=hash_token("on"), provider="corp", created_at=now, ends_at=now + HOUR)
    rig.save(sign_on)
    rig.world.plane.store.commit([nouns.pointer(keys.token(sign_on.token_hash), found[0])])
    page = entered(rig, coded(rig, "on"))
    assert rig.ok(ME, token=page["token"])["username"] == "ann"
    ann = nouns.find(rig.world.plane.store, User, keys.user(found[0]))
    assert ann is not None
    rig.save(ann.with_(signed_off_at=now + 1))
    assert "was ended" in forbidden(rig, ME, token=page["token"])


def test_neither_a_page_nor_a_job_opens_another_one(rig: Rig) -> None:
    page = entered(rig, coded(rig))["token"]
    assert "The token of a page of the console makes no codes" in rig.refused(CODE, token=page)
    plane = rig.world.plane
    admin = nouns.find(plane.store, User, keys.user(rig.project.owner_id))
    entry = nouns.find(plane.store, AccessToken, keys.access_token(hash_token(page)))
    assert admin is not None and entry is not None
    with pytest.raises(Refused, match="The token of a run's jobs makes no codes"):
        sign_in_codes.create(plane, admin, "", entry.with_(name="of-a-run", run_id="r"))


def test_a_token_that_ends_at_once_opens_nothing(rig: Rig) -> None:
    ending = made(rig, "read", expires_in=60)
    rig.world.clock.pass_(10)
    assert "too soon to sign in" in rig.refused(CODE, token=ending)


def test_a_further_page_ends_the_oldest(rig: Rig) -> None:
    def page() -> str:
        rig.world.clock.pass_(1)
        return str(entered(rig, coded(rig))["token"])

    first, second, *_ = [page() for _ in range(MOST_PAGES)]
    assert rig.ok(ME, token=first)
    newest = page()
    assert "was revoked" in forbidden(rig, ME, token=first)
    assert rig.ok(ME, token=second) and rig.ok(ME, token=newest) and len(rig.ok(LIST)) == MOST_PAGES


def test_what_was_done_is_in_the_history(rig: Rig) -> None:
    page = entered(rig, coded(rig))["access_token"]
    (event,) = [each for each in rig.ok("/api/events/list", {}) if "access token" in each["message"]]
    assert page["name"] in event["message"] and event["actor_user"] == "admin"
