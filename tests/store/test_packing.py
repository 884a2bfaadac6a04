"""What is packed is read again, whichever version packed it."""

from __future__ import annotations

import hashlib
import json
import zlib

import pytest

from chalicelib.store.packing import READABLE, WORDS, packed, unpacked

FIELDS = ("regions", "reservation", "spot_policy", "retry", "max_duration", "registry_auth", "working_dir")
SPEC = json.dumps({"run_spec": json.dumps({"configuration": {name: None for name in FIELDS * 5}, "mine": "ü" * 300})})


@pytest.mark.parametrize("body", [SPEC.encode(), b"x" * 100_000, bytes(range(256)) * 10, WORDS])
def test_what_is_packed_is_read_again(body: bytes) -> None:
    small = packed(body)
    assert small is not None and unpacked(small) == body
    assert unpacked(zlib.compress(body, 9)) == body, "as it was packed without our words"


def test_what_is_short_stays_readable() -> None:
    assert packed(b"x" * READABLE) is None and packed(b"x" * (READABLE + 1)) is not None


def test_the_words_help_and_never_change() -> None:
    spec = SPEC.encode()
    assert len(packed(spec) or spec) < len(zlib.compress(spec, 9)) - 40
    digest = hashlib.sha256(WORDS).hexdigest()[:16]
    assert digest == "b8471158619883f1", "stored bodies can't be read without the words that they were packed with"


def test_a_body_that_is_cut_off_is_not_taken_for_a_whole_one() -> None:
    small = packed(SPEC.encode())
    assert small is not None
    with pytest.raises(zlib.error):
        unpacked(small[:-5])
    with pytest.raises(zlib.error):
        unpacked(b"no body")
