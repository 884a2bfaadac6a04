"""Requests with an `Idempotency-Key`: which repeat which."""

from __future__ import annotations

import pytest

from chalicelib.domain.keyed_requests import LASTS, KeyedRequest, SentKey, earlier, sent_key
from chalicelib.errors import Invalid, KeyReused

AT = 1_000_000_000_000
SENT = sent_key("k-1", "POST", "/api/v1/projects/main/runs", b"{}")


def record(sent: SentKey = SENT) -> KeyedRequest:
    return KeyedRequest(user_id="u", key_hash=sent.key_hash, digest=sent.digest, subject_id="r", at=AT)


def test_the_same_request_repeats_itself_for_a_day() -> None:
    assert earlier(None, SENT, AT) is None
    assert earlier(record(), SENT, AT + LASTS - 1) == record()
    assert earlier(record(), SENT, AT + LASTS) is None


@pytest.mark.parametrize(
    "other",
    [
        ("PUT", "/api/v1/projects/main/runs", b"{}"),
        ("POST", "/api/v1/projects/other/runs", b"{}"),
        ("POST", "/api/v1/projects/main/runs", b'{"a": 1}'),
        ("POST", "/api/v1/projects/main/run", b"s{}"),
    ],
)
def test_another_request_with_the_key_is_refused(other: tuple[str, str, bytes]) -> None:
    with pytest.raises(KeyReused):
        earlier(record(), sent_key("k-1", *other), AT + 1)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb"])
def test_a_key_is_short_and_printable(key: str) -> None:
    with pytest.raises(Invalid):
        sent_key(key, "POST", "/", b"")


def test_the_table_has_no_key_in_clear() -> None:
    assert "k-1" not in record().model_dump_json() and "k-1" not in str(record().place().key)
