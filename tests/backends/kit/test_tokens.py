"""The access token of an account, and files with secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.backends.kit.tokens import LARGEST, AccessToken, read_secret
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.errors import InvalidCredentials, Transient
from tests.backends.clock import Clock


def test_a_token_is_fetched_anew_when_its_time_is_over_or_a_call_refused_it() -> None:
    clock, tokens = Clock(), iter(("one", "two", "three"))
    token = AccessToken(clock.now, lambda: (next(tokens), HOUR))
    assert (token.was_fetched, token.get(), token.get(), token.was_fetched) == (False, "one", "one", True)
    clock.passes(HOUR / SECOND)
    assert token.get() == "two"
    token.forget("one")
    assert token.get() == "two", "it isn't the one that was refused"
    token.forget("two")
    assert token.get() == "three"


def test_its_time_begins_before_it_is_fetched() -> None:
    clock = Clock()

    def slow() -> tuple[str, int]:
        clock.passes(10)
        return "one", MINUTE

    token = AccessToken(clock.now, slow)
    token.get()
    clock.passes(50)
    token.get()
    assert token.attempts == 2


def test_who_waited_for_a_token_shares_its_failure() -> None:
    """So a host that doesn't answer holds nobody up for longer than one call."""

    def unanswered() -> tuple[str, int]:
        raise Transient("no answer")

    token = AccessToken(Clock().now, unanswered)
    before = token.attempts
    for _ in range(3):  # these asked before the first attempt was over
        with pytest.raises(Transient, match="no answer"):
            token.after(before)
    assert token.attempts == 1
    with pytest.raises(Transient):
        token.get()
    assert token.attempts == 2, "a later question is asked anew"


def test_who_waited_for_a_token_that_is_refused_by_now_asks_for_another() -> None:
    answers = iter(("one", "two"))
    token = AccessToken(Clock().now, lambda: (next(answers), HOUR))
    before = token.attempts
    assert token.get() == token.after(before) == "one"
    token.forget("one")
    assert token.after(before) == "two"


def test_a_file_is_read_for_each_exchange_and_no_longer_than_a_secret_is(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" a key\n")
    assert read_secret(str(file), "The key") == "a key"
    file.write_text("x" * (LARGEST + 1))
    assert len(read_secret(str(file), "The key")) == LARGEST


def test_what_cant_be_read_says_why_and_shows_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(InvalidCredentials, match=r"^The key can't be read: No such file or directory\. Correct it\.$"):
        read_secret(str(file), "The key", "Correct it.")
    file.write_bytes(b"s3cret\xff")
    with pytest.raises(InvalidCredentials, match=r"^The key can't be read: it isn't text\.$"):
        read_secret(str(file), "The key")
