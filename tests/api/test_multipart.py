"""The one file of an upload, among whatever else is sent with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.api.multipart import uploaded_file
from chalicelib.errors import Invalid

TYPE = "multipart/form-data; boundary=b"


def part(name: str, content: bytes, more: str = "") -> bytes:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"


FILE = part("file", b"archive", '; filename="abc"')


@pytest.mark.parametrize("before", [0, 1, 31])
@pytest.mark.parametrize("after", [0, 1])
def test_the_file_is_found_among_other_parts(before: int, after: int) -> None:
    found = uploaded_file(TYPE, part("other", b"x") * before + FILE + part("more", b"y") * after + b"--b--\r\n")
    assert (found.name, found.content) == ("abc", b"archive")


@given(st.binary(max_size=60))
def test_any_bytes_are_content(content: bytes) -> None:
    if b"\r\n--b" not in content:
        assert uploaded_file(TYPE, part("file", content) + b"--b--").content == content


def test_a_part_with_a_head_that_is_too_long_is_passed_over() -> None:
    long = part("file", b"no", f'; x="{"y" * 5000}"')
    assert uploaded_file(TYPE, long + FILE + b"--b--").content == b"archive"


def test_a_megabyte_of_boundaries_isnt_read_to_its_end() -> None:
    with pytest.raises(Invalid, match="no part called `file` among its first 32"):
        uploaded_file(TYPE, b"--b\r\n" + b"\r\n--b\r\n" * 100_000 + FILE + b"--b--")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "begin with its boundary"),
        (FILE, "truncated"),
        (b"--b\r\n\r\n--b--", "no part called `file`"),
        (part("other", b"x") + b"--b--", "no part called `file`"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        uploaded_file(TYPE, body)
