"""What a strict parser makes of drawn bytes, and that whatever a door could do wrong with them is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz import pairs
from tests.fuzz.pairs import Drawn, Meaning, ReadRequest, judge_answers, judge_seen, meaning

HOST = "app.test"
FIRST = (
    b"POST /m7x0z HTTP/1.1\r\nHost: app.test\r\nX-Mark: m7x0z\r\nConnection: x-hop\r\nContent-Length: 5\r\n\r\nhello"
)
SECOND = b"GET /m7x1z?plan=plain HTTP/1.1\r\nHost: app.test\r\nX-Mark: m7x1z\r\n\r\n"
DRAWN = Drawn(7, (FIRST, SECOND))
OWN = (
    (b"host", b"app.test"),
    (b"x-mark", b"m7x0z"),
    (b"x-forwarded-for", b"127.0.0.1"),
    (b"content-length", b"5"),
)
SEEN = ReadRequest(b"POST", b"/m7x0z", OWN, b"hello")


def test_a_number_draws_the_same_bytes_again() -> None:
    assert pairs.draw(3, 14, HOST) == pairs.draw(3, 14, HOST) != pairs.draw(4, 14, HOST)


def test_draws_are_of_all_kinds() -> None:
    found = [meaning(pairs.draw(1, number, HOST).bytes) for number in range(600)]
    spoilt = sum(bool(each.spoilt) for each in found)
    assert 100 < spoilt < 300
    bodies = [one.body for each in found for one in each.requests]
    assert sum(b"?smuggled" in body for body in bodies) > 100 and max(map(len, bodies)) > 100_000


def test_bytes_mean_the_requests_up_to_what_is_none() -> None:
    found = meaning(FIRST + b"\r\n" + SECOND + b"GET / HTTP/1.1\r\nX: a\r\n folded\r\n\r\n")
    assert [each.target for each in found.requests] == [b"/m7x0z", b"/m7x1z?plan=plain"]
    assert "Host" in found.spoilt
    assert [each.complete for each in meaning(FIRST[:-1]).requests] == [False]
    assert len(meaning(FIRST.replace(b"x-hop", b"close") + SECOND).requests) == 1


def test_blanks_mean_nothing_where_servers_may_read_over_them() -> None:
    assert meaning(b"\r\n" + FIRST.replace(b"POST ", b"POST   ").replace(b" HTTP", b"  HTTP")) == meaning(FIRST)
    assert meaning(FIRST.replace(b" HTTP", b"\tHTTP")).spoilt


def test_what_a_door_does_right_is_no_find() -> None:
    assert judge_seen(meaning(DRAWN.bytes), SEEN) == []
    assert judge_seen(meaning(DRAWN.bytes), replace(SEEN, body=b"he", complete=False)) == []


@pytest.mark.parametrize(
    ("seen", "finds"),
    [
        (replace(SEEN, body=b"hell"), "nobody sent"),
        (replace(SEEN, target=b"/m7x0z?smuggled"), "nobody sent"),
        (replace(SEEN, method=b"0POST"), "nobody sent"),
        (replace(SEEN, headers=OWN[1:]), "as host in the place of"),
        (replace(SEEN, headers=OWN[:3]), "framed by []"),
        (replace(SEEN, headers=(*OWN, (b"transfer-encoding", b"chunked"))), "framed by"),
        (replace(SEEN, headers=(*OWN, (b"content_length", b"0"))), "which some take for framing"),
        (replace(SEEN, headers=(*OWN, (b"http2-settings", b"AA"))), "another hop"),
        (replace(SEEN, headers=(*OWN, (b"forwarded", b"host=bank.example"))), "about itself"),
        (replace(SEEN, headers=(*OWN[:2], OWN[3])), "X-Forwarded-For"),
    ],
)
def test_a_planted_fault_is_found(seen: ReadRequest, finds: str) -> None:
    assert any(finds in each for each in judge_seen(meaning(DRAWN.bytes), seen))


def answered(mark: str, body: bytes = b"", more: str = "") -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\nx-mark: {mark}\r\nX-Replica: r\r\ncontent-length: {len(body)}{more}\r\n\r\n".encode()
        + body
    )


REFUSED = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("got", "finds"),
    [
        (answered("m7x0z") + answered("m7x1z"), ""),
        (answered("m7x0z") + REFUSED, ""),
        (answered("m7x1z"), "got the answer of"),
        (answered("m7x0z") + answered("m8x1z"), "got the answer of another"),
        (answered("m7x0z") + answered("m7x1z") + answered("m7x1z"), "to what is no request"),
        (REFUSED + answered("m7x1z"), "more follows"),
        (answered("m7x0z", more="\r\nconnection: close") + REFUSED, "more follows"),
        (answered("m7x0z", pairs.POISON), "no replica answered"),
        (b"220 mail.example\r\n\r\n", "no HTTP"),
    ],
)
def test_a_wrong_answer_is_found(got: bytes, finds: str) -> None:
    found = judge_answers(DRAWN, meaning(DRAWN.bytes), got, ended=True)
    assert any(finds in each for each in found) if finds else found == []


def test_an_answer_that_breaks_off_is_none() -> None:
    got = answered("m7x0z", b"four")[:-1]
    assert judge_answers(DRAWN, Meaning(meaning(DRAWN.bytes).requests), got, ended=True) == []
