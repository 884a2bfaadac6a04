"""The number of values in a JSON text is known before it is parsed, a window at a time."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.api.bodies import MAX_ITEMS, outside_texts, parse_json
from chalicelib.errors import Invalid

TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
SEPARATORS = b"," * MAX_ITEMS + b","


@given(st.lists(st.sampled_from([b'"', b"\\", b",", b"[", b"a"]), max_size=40), st.integers(2, 9))
def test_as_much_is_found_a_few_bytes_at_a_time_as_at_once(parts: list[bytes], at_once: int) -> None:
    text = b"".join(parts)
    expected = sum(map(TEXT.sub(b"", text).count, (b",", b"[", b"{")))
    assert outside_texts(text, at_once) == outside_texts(text) >= expected
    assert outside_texts(text) == expected or text.count(b'"') > 3 * expected


@pytest.mark.parametrize("value", [",[{" * 100_000, 'a"\\' * 90_000 + "," * MAX_ITEMS])
def test_what_a_text_holds_are_no_values(value: Any) -> None:
    assert parse_json(json.dumps({"a": value}).encode()) == {"a": value}


@pytest.mark.parametrize(
    "body", [b"[" + SEPARATORS, b"[" + b'"",' * MAX_ITEMS + b"0,0]", b",[" * MAX_ITEMS + b'"' * 10**6]
)
def test_more_values_than_allowed_are_refused(body: bytes) -> None:
    with pytest.raises(Invalid, match="more than 250,000 values"):
        parse_json(body)
