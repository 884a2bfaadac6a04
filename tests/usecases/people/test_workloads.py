"""A program's ID token is exchanged once, for a token of the rule's user that ends soon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chalicelib.domain.access_tokens import MOST_TOKENS, Verb
from chalicelib.domain.instants import SECOND
from chalicelib.domain.specs.workload_rules import Workload
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import DstackError, Refused
from chalicelib.usecases.context import Plane
from chalicelib.usecases.people.access_tokens import list_tokens, revoke
from chalicelib.usecases.people.users import named_user
from chalicelib.usecases.people.workloads import exchange
from tests.api.rig import Rig

HERE = "https://dstack.example.com"


class Issuers:
    """Issuers who have signed everything."""

    def __init__(self, rig: Rig, **rule: Any) -> None:
        self.now = rig.world.clock.now() // SECOND
        written = {
            "name": "train", "issuer": "https://ci.example.com", "audience": HERE, "claims": {"sub": "job:*"},
            "user": "ci", "projects": ["main"], "verbs": ["run"], "lifetime": "10m", **rule,
        }  # fmt: skip
        self.rules = (Workload.model_validate(written),)

    def verified(self, token: str) -> tuple[Sequence[Workload], Mapping[str, Any]]:
        return self.rules, {"aud": HERE, "sub": token.partition(".")[0], "exp": self.now + 300}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    made.user("ci", ProjectRole.user)
    yield made
    made.world.plane.store.close()


def plane_of(rig: Rig, **rule: Any) -> Plane:
    return replace(rig.world.plane, workloads=Issuers(rig, **rule))


def test_it_gets_what_the_rule_gives_until_it_ends(rig: Rig) -> None:
    user, entry, text = exchange(plane_of(rig), "job:7.a.b")
    assert user.name == "ci" and entry.verbs == (Verb.read, Verb.run)
    assert [project.name for project in entry.projects] == ["main"]
    assert rig.ok("/api/users/get_my_user", token=text)["username"] == "ci"
    rig.world.clock.pass_(601)
    assert rig.call("/api/users/get_my_user", token=text).status == 403


def test_an_id_token_works_once_and_another_one_gets_a_token_beside(rig: Rig) -> None:
    plane = plane_of(rig)
    exchange(plane, "job:7.a.b")
    with pytest.raises(Refused, match="was used already"):
        exchange(plane, "job:7.a.b2")
    exchange(plane, "job:7.c.d")
    assert len(list_tokens(plane, named_user(plane.store, "ci"))) == 2


@pytest.mark.slow
def test_programs_dont_use_up_the_tokens_that_a_person_may_make_and_each_can_be_revoked(rig: Rig) -> None:
    plane, ci = plane_of(rig), named_user(rig.world.plane.store, "ci")
    texts = [exchange(plane, f"job:{number}.a.b")[2] for number in range(MOST_TOKENS + 1)]
    admin = named_user(plane.store, "admin")
    assert rig.ok("/api/users/access_tokens/create", {"name": "mine", "verbs": ["read"]})
    listed = list_tokens(plane, admin, "ci")
    assert len(listed) == MOST_TOKENS + 1 and all(entry.name.startswith("train/") for entry in listed)
    for entry in listed:
        revoke(plane, admin, entry.name, "ci")
    assert list_tokens(plane, ci) == [] and rig.call("/api/users/get_my_user", token=texts[0]).status == 403


def test_the_history_says_which_program_signed_on(rig: Rig) -> None:
    _, entry, _ = exchange(plane_of(rig), "job:7.a.b")
    said = [event["message"] for event in rig.ok("/api/events/list", {})]
    assert any(f"the rule train, as job:7; access token {entry.name}" in each for each in said), said


@pytest.mark.parametrize(
    ("rule", "token", "why"),
    [
        ({}, "other:7.a.b", "No rule of this control plane"),
        ({"user": "nobody"}, "job:7.a.b", "dstack user create nobody"),
        ({"projects": ["secret"]}, "job:7.a.b", "there is no project secret"),
    ],
)
def test_a_refusal_makes_no_token(rig: Rig, rule: dict[str, Any], token: str, why: str) -> None:
    rig.another_project("secret")
    plane = plane_of(rig, **rule)
    with pytest.raises(DstackError, match=why):
        exchange(plane, token)
    assert list_tokens(plane, named_user(plane.store, "ci")) == []


def test_programs_of_one_rule_share_its_dollars(rig: Rig) -> None:
    plane = plane_of(rig, dollars_a_day=5)
    first, second = (exchange(plane, f"job:{number}.a.b")[1] for number in range(2))
    assert first.limit is not None and first.limit == second.limit
    assert (first.limit.token, first.limit.dollars) == ("train", 5.0)
    with pytest.raises(ValidationError, match="they may submit none"):
        plane_of(rig, dollars_a_day=5, verbs=["read"])


def test_a_deactivated_user_gets_none(rig: Rig) -> None:
    rig.deactivate("ci")
    with pytest.raises(Refused, match="ci is deactivated"):
        exchange(plane_of(rig), "job:7.a.b")


def test_without_rules_no_program_signs_on(rig: Rig) -> None:
    assert "no `workloads` are configured" in rig.refused("/api/auth/oidc/exchange", {"id_token": "a.b.c"})
