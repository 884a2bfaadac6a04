from __future__ import annotations

import base64

import orjson
import pytest

from chalicelib.api.v1 import cursors
from chalicelib.errors import Invalid

RUNS = cursors.listing("/api/v1/runs", {"status": "running", "limit": "5"})


def test_a_cursor_is_a_position_in_its_list() -> None:
    assert cursors.decode_row(cursors.encode(RUNS, 17, "an-id"), RUNS) == (17, "an-id")


def test_the_order_of_filters_and_the_size_of_a_page_make_no_other_list() -> None:
    one, other = {"a": "1", "b": "2", "limit": "3"}, {"b": "2", "a": "1", "cursor": "x"}
    assert cursors.listing("/p", one) == cursors.listing("/p", other) != cursors.listing("/p", {"a": "1"})


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(Invalid, match="another list"):
        cursors.decode(cursors.encode(RUNS, 17, "an-id"), cursors.listing("/api/v1/runs", {"status": "done"}))


def raw(*parts: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(parts)).rstrip(b"=").decode()


MARK = orjson.loads(base64.urlsafe_b64decode(cursors.encode(RUNS) + "=="))[1]


@pytest.mark.parametrize(
    "mangled",
    ["", "x", "é", "!!!!", raw(), raw(2, MARK, 17, "i"), raw(1, MARK, 17, ["i"]), raw(1, MARK, True, "i"),
     raw(1, MARK, "17", "i"), raw(1, MARK, -1, "i"), raw(1, MARK, 10**18, "i"), raw(1, MARK, 17, ""), "A" * 401,
     base64.urlsafe_b64encode(b"{}").decode(), base64.urlsafe_b64encode(b"17").decode()],
)  # fmt: skip
def test_what_is_no_cursor_is_refused(mangled: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        cursors.decode_row(mangled, RUNS)
