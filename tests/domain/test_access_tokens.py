"""The text of access tokens, and which calls they are enough for."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from chalicelib.domain.access_tokens import (
    FORM,
    MOST_PROJECTS,
    PREFIX,
    AccessToken,
    ScopedProject,
    TokenClaims,
    Verb,
    claims_of,
    ended,
    refusal,
    text_of,
    with_read,
)
from chalicelib.domain.instants import SECOND
from chalicelib.domain.tenants import PROJECT_NAME

KEY, SECRET = b"k" * 32, "s3cret_-" * 4
END = 1_800_000_000 * SECOND
USER = "2f1c7a52-0000-4000-8000-000000000001"


def claims(*verbs: Verb, **more: Any) -> TokenClaims:
    return TokenClaims(**{"user_id": USER, "expires_at": END, "verbs": frozenset(with_read(verbs)), **more})


def signed_as(written: Any, key: bytes = KEY) -> str:
    """The text of a token with these claims, whatever they are: as `text_of` puts it together."""
    plain = text_of(key, claims(), SECRET)
    body = base64.urlsafe_b64encode(orjson.dumps(written)).rstrip(b"=").decode()
    return plain.replace(plain.removeprefix(PREFIX).partition(".")[0], body)


def test_the_text_says_what_it_was_made_with() -> None:
    known = claims(Verb.run, Verb.fleets, projects=frozenset({"dev", "main"}))
    text = text_of(KEY, known, SECRET)
    assert claims_of(KEY, text) == known and FORM.fullmatch(text) and text.startswith("dstack_")


def test_the_longest_text_has_the_form_and_fits_into_a_header() -> None:
    names = frozenset(f"{number:02d}{'x' * 48}" for number in range(MOST_PROJECTS))
    assert all(PROJECT_NAME.fullmatch(name) for name in names)
    text = text_of(KEY, claims(*Verb, projects=names), "s" * 43)
    assert FORM.fullmatch(text) and len(f"Bearer {text}") <= 2000


def test_every_changed_character_makes_it_another_text() -> None:
    text = text_of(KEY, claims(Verb.run), SECRET)
    for place, character in enumerate(text):
        other = "A" if character != "A" else "B"
        assert claims_of(KEY, f"{text[:place]}{other}{text[place + 1 :]}") is None, place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0d1f6fd5-31f8-4b4f-a0a0-e1c39ba57e6a",
        "dstack-service.WyJ1Il0.c2ln",
        text_of(b"o" * 32, claims(Verb.run), SECRET),
        text_of(KEY, claims(Verb.run), SECRET) + "=",
        text_of(KEY, claims(Verb.run), SECRET) + "\n",
        text_of(KEY, claims(Verb.run), SECRET).rpartition(".")[0],
        signed_as([USER, 1_800_000_000, [*Verb], []]),
    ],
)
def test_what_was_not_signed_here_has_no_claims(text: str) -> None:
    assert claims_of(KEY, text) is None


@pytest.mark.parametrize(
    ("known", "verb", "project", "why"),
    [
        (claims(), Verb.read, None, ""),
        (claims(), Verb.read, "main", ""),
        (claims(Verb.run), Verb.run, "main", ""),
        (claims(Verb.run, projects=frozenset({"main"})), Verb.run, "main", ""),
        (claims(), Verb.run, "main", "lacks the verb `run` and has `read`.*dstack token create NAME --verb run"),
        (claims(Verb.run), Verb.fleets, "main", "lacks the verb `fleets` and has `read`, `run`"),
        (claims(*Verb), None, None, "No access token may do this.*dstack login"),
        (claims(projects=frozenset({"b", "a"})), Verb.read, "main", "only for projects a, b, not for main.*--for main"),
        (claims(projects=frozenset({"a"})), Verb.read, None, "only for project a, and this call isn't about one"),
    ],
)
def test_what_a_token_is_enough_for(known: TokenClaims, verb: Verb | None, project: str | None, why: str) -> None:
    import re

    said = refusal(known, verb, project)
    assert bool(said) == bool(why) and re.search(why, said), said


def test_it_is_valid_until_its_end() -> None:
    assert ended(claims(), END - 1) == ""
    assert "expired at 2027-01-15T08:00:00+00:00" in ended(claims(), END)


def test_every_pair_of_what_it_has_and_what_is_needed() -> None:
    for has in Verb:
        enough = {verb for verb in Verb if not refusal(claims(has), verb, "main")}
        assert enough == {has, Verb.read}


def test_a_verb_of_a_newer_version_gives_nothing() -> None:
    known = TokenClaims(USER, END, frozenset({"read", "fly"}))  # type: ignore[arg-type]
    found = claims_of(KEY, text_of(KEY, known, SECRET))
    assert found is not None and found.verbs == {Verb.read}


def test_a_project_of_the_same_name_is_another_one() -> None:
    token = AccessToken(
        id="t", user_id=USER, name="ci", token_hash="h", created_at=0, expires_at=END, verbs=(Verb.read,),
        projects=(ScopedProject(id="one", name="main"),),
    )  # fmt: skip
    assert token.includes("one") and not token.includes("two")
    assert token.with_(projects=()).includes("two")
