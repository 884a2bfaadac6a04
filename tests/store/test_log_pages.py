"""Pages out of pieces of a log: what is kept of an append, where a page is cut, how a token reads."""

from __future__ import annotations

import pytest

from chalicelib.errors import Invalid
from chalicelib.store.log_pages import Span, Token, beyond_end, packed, page_of, token_of, unpacked
from chalicelib.store.logs import LogQuery


@pytest.mark.parametrize(
    ("end", "offset", "expected"),
    [
        (0, 0, [(1, b"abc"), (2, b"de")]),
        (2, 0, [(1, b"c"), (2, b"de")]),
        (3, 0, [(2, b"de")]),
        (4, 0, [(2, b"e")]),
        (5, 0, []),
        (9, 5, [(2, b"e")]),
        (4, 5, []),
    ],
)
def test_only_what_is_new_of_an_append_is_kept(end: int, offset: int, expected: list[tuple[int, bytes]]) -> None:
    assert beyond_end(end, offset, [(1, b"abc"), (2, b"de")]) == expected


def test_an_offset_before_the_log_is_refused() -> None:
    with pytest.raises(Invalid, match="offset of -1"):
        beyond_end(0, -1, [(1, b"a")])


def test_pieces_come_back_with_their_offsets() -> None:
    assert list(unpacked(packed([(5, b"abc"), (-7, b""), (9, b"d")]), 100)) == [
        (100, 5, b"abc"),
        (103, -7, b""),
        (103, 9, b"d"),
    ]


def test_what_is_no_whole_piece_is_left_out() -> None:
    """As of an object that no honest agent has written."""
    packed_pieces = packed([(5, b"abc")])
    assert list(unpacked(packed_pieces + b"\0" * 11, 0)) == [(0, 5, b"abc")]
    assert list(unpacked(packed_pieces[:-1], 0)) == [(0, 5, b"ab")]
    assert list(unpacked(b"no pieces", 0)) == []


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "a.1", "1.b", "-1.2", "1.2.3", "²." + "1", "1" * 19 + ".0"])
def test_a_token_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="token"):
        token_of(text)


def test_a_token_comes_back() -> None:
    assert token_of(None) is None
    assert token_of(str(Token(12, 345))) == Token(12, 345)
    assert token_of("9" * 18 + ".0") == Token(int("9" * 18), 0)


PIECES = [(0, 10, b"first"), (5, 20, "sécond€".encode()), (15, 30, b"third")]
END = 20


def span(first: int = 0, last: int = END) -> Span:
    return Span(7, first, last, 10, 30, lambda: PIECES)


def texts(query: LogQuery, *spans: Span) -> list[str]:
    return [data.decode() for _, data in page_of(spans or [span()], query, Token(0, 0)).records]


@pytest.mark.parametrize(
    ("room", "first", "last"),
    [
        (5, ["first"], ["third"]),
        (6, ["first"], ["third"]),
        (4, ["firs"], ["hird"]),
        (1, ["f"], ["d"]),
        (19, ["first", "sécond€"], ["third", "sécond€"]),
    ],
)
def test_a_page_takes_no_more_bytes_than_it_may(room: int, first: list[str], last: list[str]) -> None:
    assert texts(LogQuery(max_bytes=room)) == first
    assert texts(LogQuery(max_bytes=room, descending=True)) == last


@pytest.mark.parametrize(
    ("room", "first", "last"), [(3, "sé", "€"), (4, "séc", "d€"), (2, "s", None), (9, "sécond", None)]
)
def test_a_page_never_cuts_a_character(room: int, first: str, last: str | None) -> None:
    only = Span(7, 5, 15, 20, 20, lambda: PIECES[1:2])
    assert texts(LogQuery(max_bytes=room), only) == [first]
    if last is not None:
        assert texts(LogQuery(max_bytes=room, descending=True), only) == [last]


def test_a_page_with_less_room_than_a_character_goes_on_all_the_same() -> None:
    page = page_of([Span(7, 0, 3, 1, 1, lambda: [(0, 1, "€".encode())])], LogQuery(max_bytes=2), Token(0, 0))
    assert page.records == ((1, "€".encode()[:2]),)


def test_a_page_says_where_the_next_one_begins() -> None:
    page = page_of([span()], LogQuery(limit=1), Token(0, 0))
    assert (page.records, page.next_token, page.resume) == (((10, b"first"),), "7.5", "7.5")
    page = page_of([span(5)], LogQuery(limit=1, descending=True), Token(0, 0))
    assert (page.records, page.next_token) == (((30, b"third"),), "7.15")
    page = page_of([span()], LogQuery(max_bytes=7), Token(0, 0))
    assert (page.next_token, page.resume) == ("7.5", "7.5")


def test_a_page_that_ends_the_log_says_where_a_follower_goes_on() -> None:
    assert page_of([span()], LogQuery(), Token(0, 0)).resume == f"7.{END}"
    assert page_of([], LogQuery(), Token(3, 4)).resume == "3.4"
    assert page_of([span()], LogQuery(descending=True), Token(0, 0)).resume == ""


def test_times_bound_a_page_and_spans_outside_them_arent_read() -> None:
    assert texts(LogQuery(start=11, end=30)) == ["sécond€"]
    assert texts(LogQuery(start=10, end=31)) == ["first", "sécond€", "third"]
    unread = Span(7, 0, 5, 40, 50, lambda: pytest.fail("it is later than what is asked for"))
    assert texts(LogQuery(start=20, end=40), span(), unread) == ["sécond€", "third"]


def test_a_span_shows_its_own_part_only() -> None:
    assert texts(LogQuery(), span(3, 6)) == ["st", "s"]
