"""Requests with an `Idempotency-Key`: which repeat which."""

from __future__ import annotations

import pytest

from chalicelib.domain.keyed_requests import LASTS, KeyedRequest, SentKey, earlier, sent_key
from chalicelib.errors import Invalid, KeyReused

AT = 1_000_000_000_000
SENT = sent_key(b"secret", "k-1", b"POST", b"/api/v1/projects/main/runs", b"{}")


def record(sent: SentKey = SENT) -> KeyedRequest:
    return KeyedRequest(user_id="u", key_hash=sent.key_hash, digest=sent.digest, subject_id="r", at=AT)


def test_the_same_request_repeats_itself_for_a_day() -> None:
    assert earlier(None, SENT, AT) is None
    assert earlier(record(), SENT, AT + LASTS - 1) == record()
    assert earlier(record(), SENT, AT + LASTS) is None


@pytest.mark.parametrize(
    "other",
    [
        (b"PUT", b"/api/v1/projects/main/runs", b"{}"),
        (b"POST", b"/api/v1/projects/other/runs", b"{}"),
        (b"POST", b"/api/v1/projects/main/runs", b'{"a": 1}'),
        (b"POST", b"/api/v1/projects/main/run", b"s{}"),
    ],
)
def test_another_request_with_the_key_is_refused(other: tuple[bytes, ...]) -> None:
    with pytest.raises(KeyReused):
        earlier(record(), sent_key(b"secret", "k-1", *other), AT + 1)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb"])
def test_a_key_is_short_and_printable(key: str) -> None:
    with pytest.raises(Invalid):
        sent_key(b"secret", key, b"POST", b"/", b"")


def test_the_table_has_no_key_in_clear() -> None:
    """Nor a digest by which a short secret in a body could be found."""
    assert sent_key(b"another", "k-1", b"POST", b"/api/v1/projects/main/runs", b"{}").digest != SENT.digest
    assert "k-1" not in record().model_dump_json() and "k-1" not in str(record().place().key)
