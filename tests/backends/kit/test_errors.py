"""What a failure means, and how its text is cleaned."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from chalicelib.backends.kit.errors import LONGEST, ErrorTable, ProviderFailure, cleaned, described
from chalicelib.errors import (
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    MissingPermission,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)

TABLE = ErrorTable(
    "Example",
    codes=((InsufficientCapacity, "out_of_stock no-room"), (QuotaExceeded, "quota"), (Throttled, "slow-down")),
    texts=((InsufficientCapacity, r"no longer any instances"), (QuotaExceeded, r"insufficient (credit|balance)")),
)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (ProviderFailure("out_of_stock", "quota", 403), InsufficientCapacity),  # the code counts first
        (ProviderFailure("", "There are NO LONGER ANY instances left", 200), InsufficientCapacity),
        (ProviderFailure("new-code", "Insufficient balance", 400), QuotaExceeded),  # then the text
        (ProviderFailure("new-code", "?", 403), MissingPermission),  # then the status
        (ProviderFailure("new-code", "?", 503), Transient),
        (ProviderFailure("new-code"), Transient),
    ],
)
def test_code_text_and_status_count_in_this_order(failure: ProviderFailure, kind: type) -> None:
    assert TABLE.kind(failure) is kind


def test_what_a_call_means_wins_over_its_like() -> None:
    by_code, by_status = ProviderFailure("quota", "", 404), ProviderFailure("", "", 404)
    assert TABLE.kind(by_code, {404: Unfit}) is QuotaExceeded
    assert TABLE.kind(by_code, {"quota": Gone}) is Gone
    assert TABLE.kind(by_status, {404: Unfit}) is Unfit


def test_texts_say_who_refused_what_and_where() -> None:
    def text(code: str, status: int, region: str = "EU-1") -> str:
        return str(TABLE.error(ProviderFailure(code, "it said so", status), "POST /pods", region))

    assert text("bad-key", 401) == "Example refused the credentials (bad-key): it said so"
    assert text("scope", 403) == "Example doesn't allow POST /pods in EU-1 (scope): it said so"
    assert text("", 500, "") == "POST /pods: 500: it said so"
    assert text("", 0) == "POST /pods in EU-1: no code: it said so"
    assert isinstance(TABLE.error(ProviderFailure("bad-key", "", 401), "GET /"), InvalidCredentials)


def test_a_throttle_by_code_says_how_long() -> None:
    error = TABLE.error(ProviderFailure("slow-down", "", 403, retry_after=7.0), "GET /")
    assert isinstance(error, Throttled) and error.retry_after == 7.0


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        ({"error": {"code": "no-room", "message": "m", "suggestion": "s"}}, "no-room", "m"),
        ({"error": {"code": 403, "message": "m", "errors": [{"reason": "rateLimit"}]}}, "rateLimit", "m"),
        ({"error": {"code": 404, "message": "m", "status": "NOT_FOUND"}}, "NOT_FOUND", "m"),
        ({"error": {"errors": [{"code": "POOL_EXHAUSTED", "message": "m"}]}}, "POOL_EXHAUSTED", "m"),
        ({"code": "bad_credential", "message": "m"}, "bad_credential", "m"),
        ({"success": False, "error": "no_such_ask", "msg": "m"}, "no_such_ask", "m"),
        ({"success": False, "error": "auth_error"}, "auth_error", "auth_error"),
        ({"error": "The text alone."}, "", "The text alone."),
        ({"title": "Bad", "status": 400, "detail": "m"}, "", "m"),
        ({"errors": [{"status": 400, "title": "t", "detail": "m"}]}, "", "m"),
        ({"errors": ["m", "n"]}, "", "m"),
        ({"errors": [], "message": "m"}, "", "m"),
        ({"errors": {"name": ["is taken"]}, "message": "m"}, "", "m"),
        ({"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "m"}, "AlreadyExists", "m"),
        ("m", "", "m"),
        (["m"], "", ""),
        (None, "", ""),
        ({"error": None, "errors": None, "message": 5}, "", ""),
    ],
)  # fmt: skip
def test_every_usual_form_of_a_failure_is_read(data: Any, code: str, text: str) -> None:
    assert described(data, 400) == ProviderFailure(code, text, 400)


@pytest.mark.parametrize("secret", ["abcdef123456", 'quote"and\\slash', "line\nbreak", "a/b+c=d&e", "ümlaut-ümlaut"])
def test_a_secret_is_hidden_in_every_form_that_may_come_back(secret: str) -> None:
    for form in (secret, base64.b64encode(secret.encode()).decode(), quote(secret, safe=""), quote(secret)):
        assert cleaned(f"no: {form}!", [secret]) == "no: [hidden]!"
    assert cleaned(orjson.dumps({"key": secret}).decode(), [secret]) == '{"key":"[hidden]"}'


def test_what_is_too_short_for_a_secret_blanks_nothing_out() -> None:
    assert cleaned("a sentence, short", ["", "sen", "short"]) == "a sentence, short"
    assert cleaned("a sentence, longer", ["longer"]) == "a sentence, [hidden]"


def test_a_secret_at_the_cut_is_hidden_whole() -> None:
    text = "x" * (LONGEST - 5) + "secret-secret"
    assert "secr" not in cleaned(text, ["secret-secret"])


def test_a_text_is_one_line_of_readable_length() -> None:
    assert cleaned("  one\n\x1b[31mred ") == "one red"
    assert cleaned("x" * 5000) == "x" * (LONGEST - 1) + "…"
    assert cleaned("x" * LONGEST) == "x" * LONGEST
