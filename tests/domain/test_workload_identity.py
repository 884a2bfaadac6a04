"""Which programs may sign on with a token of where they run, and which not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from chalicelib.domain.specs.workload_rules import Workload
from chalicelib.domain.workload_identity import LEEWAY, of_issuer, rule_for
from chalicelib.errors import Refused

NOW = 1_800_000_000
GITHUB = "https://token.actions.githubusercontent.com"
HERE = "https://dstack.example.com"


def rule(**more: Any) -> Workload:
    written = {
        "name": "train", "issuer": GITHUB, "audience": HERE, "claims": {"sub": "repo:acme/train:*"},
        "user": "ci", "projects": ["main"], "verbs": ["run"], **more,
    }  # fmt: skip
    return Workload.model_validate(written)


def token(**more: Any) -> dict[str, Any]:
    sent = {
        "iss": GITHUB, "aud": HERE, "sub": "repo:acme/train:ref:refs/heads/main", "repository_owner_id": "7",
        "exp": NOW + 300, "nbf": NOW - 5, "iat": NOW - 5, **more,
    }  # fmt: skip
    return {name: value for name, value in sent.items() if value is not ...}


@pytest.mark.parametrize(
    ("claims", "sent"),
    [
        ({"sub": "repo:acme/train:*"}, {}),
        ({"sub": "repo:acme/train:ref:refs/heads/main"}, {}),
        ({"sub": "repo:acme/train:*", "environment": "prod"}, {"environment": "prod"}),
        ({"repository_owner_id": "7"}, {}),
        ({"repository_owner_id": "7"}, {"repository_owner_id": 7}),
        ({"sub": "repo:acme/train:*", "ref_protected": "true"}, {"ref_protected": True}),
        ({"sub": "repo:acme/train:*"}, {"aud": ["https://other.example.com", HERE]}),
        ({"sub": "repo:acme/train:*"}, {"exp": NOW - LEEWAY + 1}),
        ({"sub": "repo:acme/train:*"}, {"nbf": NOW + LEEWAY, "iat": ...}),
    ],
)
def test_a_program_that_a_rule_names_is_let_in(claims: dict[str, str], sent: dict[str, Any]) -> None:
    known = rule(claims=claims)
    assert rule_for([known], token(**sent), NOW) is known


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ({"sub": "repo:acme/training:ref:refs/heads/main"}, "No rule .* `sub` `repo:acme/training"),
        ({"sub": "repo:evil/train:ref:refs/heads/main"}, "No rule"),
        ({"sub": "REPO:acme/train:x"}, "No rule"),
        ({"sub": " repo:acme/train:x"}, "No rule"),
        ({"sub": ["repo:acme/train:x"]}, "No rule"),
        ({"sub": {"repo:acme/train:x": 1}}, "No rule"),
        ({"sub": ...}, "No rule"),
        ({"aud": "https://github.com/acme"}, "is for `https://github.com/acme`, not for this"),
        ({"aud": f"{HERE}.evil.example.com"}, "not for this control plane"),
        ({"aud": [HERE + "/"]}, "not for this control plane"),
        ({"aud": {HERE: 1}}, "not for this control plane"),
        ({"aud": ...}, "is for nothing"),
        ({"exp": NOW - LEEWAY}, "has expired"),
        ({"exp": ...}, "`exp` is nothing"),
        ({"exp": "2099-01-01"}, "`exp` is `2099-01-01`"),
        ({"exp": True}, "`exp` is `True`"),
        ({"exp": float("nan")}, "`exp` is `nan`"),
        ({"exp": float("inf")}, "`exp` is `inf`"),
        ({"exp": NOW + 86_401}, "valid for more than a day"),
        ({"nbf": NOW + LEEWAY + 1}, "isn't valid yet"),
        ({"iat": NOW + LEEWAY + 1}, "isn't valid yet"),
        ({"nbf": "soon"}, "`nbf` is `soon`"),
    ],
)
def test_every_wrong_token_is_refused_with_what_is_wrong(sent: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        rule_for([rule()], token(**sent), NOW)


def test_every_condition_counts_and_the_first_rule_that_fits_wins() -> None:
    strict = rule(name="deploy", claims={"sub": "repo:acme/train:*", "environment": "prod"}, verbs=["project"])
    usual = rule()
    assert rule_for([strict, usual], token(environment="prod"), NOW) is strict
    assert rule_for([strict, usual], token(environment="dev"), NOW) is usual
    with pytest.raises(Refused):
        rule_for([strict], token(environment="dev"), NOW)


def test_only_issuers_that_were_written_down_are_asked_for_keys() -> None:
    known = rule()
    assert of_issuer([known], f"{GITHUB}/") == (known,)
    for other in ("", "https://evil.example.com", f"{GITHUB}.evil.example.com", GITHUB.replace("https", "http")):
        with pytest.raises(Refused, match="aren't accepted here"):
            of_issuer([known], other)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"claims": {}}, "claims"),
        ({"claims": {"sub": "*"}}, "every token would meet"),
        ({"claims": {"sub": "repo:*/train:*"}}, "only be at the end"),
        ({"claims": {"repository": "acme/*"}}, "only `sub` may end"),
        ({"claims": {"aud": "x"}}, "is checked anyway"),
        ({"claims": {"sub": "repo:*"}}, "signs for everybody"),
        ({"claims": {"sub": "repo:acme*"}}, "signs for everybody"),
        ({"claims": {"environment": "prod"}}, "signs for everybody"),
        ({"issuer": "https://gitlab.com", "claims": {"sub": "project_path:acme*"}}, "signs for everybody"),
        ({"issuer": "https://agent.buildkite.com", "claims": {"sub": "organization:acme*"}}, "signs for everybody"),
        ({"issuer": "https://app.terraform.io", "claims": {"sub": "organization:*"}}, "signs for everybody"),
        ({"issuer": "https://accounts.google.com", "claims": {"sub": "1*"}}, "signs for everybody"),
        ({"issuer": "http://ci.example.com"}, "isn't an https address"),
        ({"lifetime": "2h"}, "a minute to an hour"),
        ({"verbs": ["server"]}, "about no project"),
        ({"projects": []}, "projects"),
    ],
)
def test_a_rule_that_would_let_in_strangers_is_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        rule(**more)


def test_an_issuer_of_ones_own_needs_no_owner() -> None:
    assert rule(issuer="https://ci.example.com", claims={"environment": "prod"}).lifetime == 900
