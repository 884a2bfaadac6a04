"""The name of a model is found in any body, however it is cut; whatever else a body holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.serving.body_fields import LONGEST, PARTS, PARTS_AT_ONCE, STEPS, BodyFields, FormHead, JsonHead
from tests.harness.examples import many

NAMES = st.text(max_size=8) | st.just("model")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def read(head: BodyFields, body: bytes, size: int = 1) -> dict[str, str]:
    for at in range(0, len(body), size):
        if head.feed(body[at : at + size]):
            break
    return head.found


@given(VALUES, st.integers(1, 9), st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=many(150), deadline=None)
@pytest.mark.slow
def test_what_json_says_at_the_top_is_found(value: Any, size: int, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode(errors="replace")
    means = json.loads(body)
    model = means.get("model") if isinstance(means, dict) else None
    assert read(JsonHead("model"), body, size) == ({"model": model} if isinstance(model, str) else {})


@given(st.binary(max_size=200), st.integers(1, 9))
@settings(max_examples=many(200), deadline=None)
def test_no_bytes_make_it_fail(body: bytes, size: int) -> None:
    in_one_piece = JsonHead("model"), FormHead("multipart/form-data; boundary=x", "model")
    pieces = JsonHead("model"), FormHead("multipart/form-data; boundary=x", "model")
    for one, other in zip(in_one_piece, pieces, strict=True):
        assert read(one, body, len(body) or 1) == read(other, body, size)


def test_it_stops_at_the_last_field_that_it_looks_for() -> None:
    head = JsonHead("model", "previous_response_id")
    assert not head.feed(b'{"model": "a/b", "input": {"model": "no"}, "previous_resp')
    assert head.feed(b'onse_id": "resp_1", "rest')
    assert head.found == {"model": "a/b", "previous_response_id": "resp_1"}
    assert bytes(head.held).endswith(b'"rest')


def test_an_object_that_ends_without_it_needs_no_more() -> None:
    head = JsonHead("model")
    assert head.feed(b'{"messages": [{"model": "no"}]}')
    assert not head.found


@pytest.mark.parametrize(
    "body", [b"[1]", b'{"model": 3}', b'{"model": "\\x"}', b'{"model": "\xff"}', b"}{", b'"model"']
)
def test_of_no_name_none_is_made_up(body: bytes) -> None:
    assert read(JsonHead("model"), body).get("model", "") == ""


def test_a_name_longer_than_any_is_none() -> None:
    assert read(JsonHead("model"), json.dumps({"model": "m" * LONGEST}).encode(), 1000) == {"model": ""}


FORM = (
    b"--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\nContent-Type: audio/wav\r\n\r\n"
    b"RIFF\r\n\r\n--xy\r\nname=\"model\"\r\n\r\nno\r\n--xyz\r\n"
    b"Content-Disposition: form-data; name=\"model\"\r\n\r\nopenai/whisper-1\r\n--xyz--\r\n"
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("boundary", ["xyz", '"xyz"'])
def test_a_part_of_a_form_is_found(size: int, boundary: str) -> None:
    head = FormHead(f"multipart/form-data; boundary={boundary}", "model")
    assert read(head, FORM, size) == {"model": "openai/whisper-1"}


def test_a_form_without_a_boundary_has_no_parts() -> None:
    assert read(FormHead("multipart/form-data", "model"), FORM) == {}


def test_the_time_it_takes_grows_with_the_body_only() -> None:
    """A body that comes byte by byte is as much work as one that comes whole: every byte is looked at once."""
    bytes_read = 0

    class Counting(JsonHead):
        def _step(self) -> bool:
            nonlocal bytes_read
            before = self._at
            going = super()._step()
            bytes_read += self._at - before
            return going

    body = b'{"messages": "' + b"\\\\a" * 5_000 + b'", "model": "m"}'
    assert read(Counting("model"), body) == {"model": "m"}
    assert bytes_read <= len(body)


def turns(head: BodyFields, body: bytes) -> int:
    """How often it has to be fed until it has read all of this."""
    head.feed(body)
    count = 1
    while head.behind:
        head.feed(b"")
        count += 1
    return count


def test_a_body_of_signs_is_read_a_number_of_them_at_a_time() -> None:
    head = JsonHead("model")
    assert turns(head, b'{"a":0' + b"," * (5 * STEPS) + b'"model":"m"}') == 6
    assert head.found == {"model": "m"}


def test_what_lists_inside_hold_is_passed_over() -> None:
    head = JsonHead("model")
    assert turns(head, b'{"input":[[' + b"1,2,3," * STEPS + b'0]],"model":"m"}') == 1
    assert head.found == {"model": "m"}


@pytest.mark.parametrize(("before", "found"), [(PARTS - 2, {"model": "m"}), (PARTS, {})])
def test_a_form_is_read_a_number_of_parts_at_a_time_and_so_many_at_most(before: int, found: dict[str, str]) -> None:
    head = FormHead("multipart/form-data; boundary=b", "model")
    part = b'--b\r\ncontent-disposition: form-data; name="%b"\r\n\r\nm\r\n'
    body = part % b"other" * before + part % b"model" + b"--b--"
    assert turns(head, body) == PARTS // PARTS_AT_ONCE
    assert head.found == found
    assert head.feed(body) and head.found == found
