"""What every log store must do. A test class inherits `LogContract` and gives it `logs`."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from chalicelib.errors import Invalid
from chalicelib.store.logs import LogPage, LogQuery, LogStore, Piece
from tests.harness.conformance import Conformance
from tests.harness.examples import seeds

P, J = "project-1", "job-1"


def read_all(logs: LogStore, **query: Any) -> list[Piece]:
    return [piece for page in pages(logs, **query) for piece in page.records]


def pages(logs: LogStore, **query: Any) -> list[LogPage]:
    found = [logs.read(P, J, LogQuery(**query))]
    while found[-1].next_token is not None:
        assert len(found) < 3000, "a log without an end"
        found.append(logs.read(P, J, LogQuery(**{**query, "token": found[-1].next_token})))
    return found


def text(pieces: list[Piece]) -> bytes:
    return b"".join(data for _, data in pieces)


class LogContract(Conformance):
    seeds, length = 6, 3000  # of histories, and bytes of each

    @pytest.fixture
    def logs(self) -> LogStore:
        raise NotImplementedError

    def test_a_log_that_was_never_written_is_empty(self, logs: LogStore) -> None:
        assert logs.end(P, J) == 0
        for descending in (False, True):
            page = logs.read(P, J, LogQuery(descending=descending))
            assert page.records == () and page.next_token is None

    def test_what_is_appended_comes_back_with_its_times(self, logs: LogStore) -> None:
        assert logs.append(P, J, 0, [(10, b"a\n"), (11, b"b\xff\x00\n")]) == 6
        assert logs.append(P, J, 6, [(12, b"c")]) == 7
        assert logs.end(P, J) == 7
        pieces = ((10, b"a\n"), (11, b"b\xff\x00\n"), (12, b"c"))
        assert logs.read(P, J).records == pieces
        assert logs.read(P, J, LogQuery(descending=True)).records == pieces[::-1]

    def test_jobs_and_projects_are_apart(self, logs: LogStore) -> None:
        logs.append(P, J, 0, [(1, b"mine")])
        logs.append(P, "job-2", 0, [(1, b"theirs!")])
        logs.append("project-2", J, 0, [(1, b"other")])
        assert (logs.end(P, J), logs.end(P, "job-2"), logs.end("project-2", J)) == (4, 7, 5)
        logs.delete(P, J)
        assert (logs.end(P, J), logs.end(P, "job-2"), logs.end("project-2", J)) == (0, 7, 5)

    def test_an_overlap_is_cut(self, logs: LogStore) -> None:
        logs.append(P, J, 0, [(1, b"hello ")])
        assert logs.append(P, J, 0, [(1, b"hello "), (2, b"world")]) == 11
        assert logs.append(P, J, 8, [(2, b"rld"), (3, b"!")]) == 12
        assert logs.append(P, J, 3, [(1, b"lo ")]) == 12
        assert text(read_all(logs)) == b"hello world!"

    def test_a_gap_appends_nothing(self, logs: LogStore) -> None:
        assert logs.append(P, J, 5, [(1, b"late")]) == 0
        logs.append(P, J, 0, [(1, b"abc")])
        assert logs.append(P, J, 4, [(2, b"e")]) == 3
        assert logs.append(P, J, 3, [(2, b"")]) == 3
        assert logs.append(P, J, 3, []) == 3
        assert text(read_all(logs)) == b"abc"

    def test_pages_by_records(self, logs: LogStore) -> None:
        pieces = [(n, b"%d\n" % n) for n in range(50)]
        for chunk in range(0, 50, 10):
            logs.append(P, J, logs.end(P, J), pieces[chunk : chunk + 10])
        for limit in (1, 7, 10, 50, 51):
            found = pages(logs, limit=limit)
            assert [piece for page in found for piece in page.records] == pieces
            assert {len(page.records) for page in found[:-1]} <= {limit}
            assert read_all(logs, limit=limit, descending=True) == pieces[::-1]

    def test_a_page_that_ends_the_log_has_no_token(self, logs: LogStore) -> None:
        logs.append(P, J, 0, [(n, b"x") for n in range(10)])
        assert logs.read(P, J, LogQuery(limit=10)).next_token is None
        assert logs.read(P, J, LogQuery(limit=10, descending=True)).next_token is None
        assert logs.read(P, J, LogQuery(limit=9)).next_token is not None

    def test_pages_by_bytes_never_cut_a_character(self, logs: LogStore) -> None:
        content = "аб☃😀z" * 12
        logs.append(P, J, 0, [(1, content.encode()), (2, b"tail")])
        for most in (4, 5, 7, 100):
            for descending in (False, True):
                found = pages(logs, max_bytes=most, descending=descending)
                parts = [data for page in found for _, data in page.records]
                assert all(len(text(list(page.records))) <= most for page in found)
                assert [part.decode() for part in parts], "each part is whole characters"
                assert b"".join(parts[::-1] if descending else parts) == content.encode() + b"tail"

    def test_bytes_that_are_no_text_come_whole_too(self, logs: LogStore) -> None:
        data = bytes(range(128, 192))
        logs.append(P, J, 0, [(1, data)])
        for most in (1, 2, 50):
            assert text(read_all(logs, max_bytes=most)) == data
            assert text(read_all(logs, max_bytes=most, descending=True)[::-1]) == data

    def test_times_bound_a_read(self, logs: LogStore) -> None:
        for n in range(10):
            logs.append(P, J, 2 * n, [(10 * n, b"a"), (10 * n + 5, b"b")])
        assert [at for at, _ in read_all(logs, start=25, end=50)] == [25, 30, 35, 40, 45]
        assert [at for at, _ in read_all(logs, start=25, end=50, limit=2)] == [25, 30, 35, 40, 45]
        assert [at for at, _ in read_all(logs, start=25, end=50, limit=2, descending=True)] == [45, 40, 35, 30, 25]
        assert [at for at, _ in read_all(logs, end=1)] == [0]
        assert [at for at, _ in read_all(logs, start=95)] == [95]
        assert read_all(logs, start=96) == read_all(logs, start=30, end=30) == []

    def test_times_may_go_back(self, logs: LogStore) -> None:
        logs.append(P, J, 0, [(100, b"a"), (50, b"b"), (200, b"c")])
        logs.append(P, J, 3, [(70, b"d")])
        assert [data for _, data in read_all(logs, start=60, end=150)] == [b"a", b"d"]

    def test_a_follower_goes_on_where_it_was(self, logs: LogStore) -> None:
        seen, resume = b"", None
        for n in range(12):
            logs.append(P, J, logs.end(P, J), [(n, b"line %d\n" % n)])
            if n % 3 == 0:
                page = logs.read(P, J, LogQuery(token=resume))
                assert page.next_token is None
                seen, resume = seen + text(list(page.records)), page.resume
                assert logs.read(P, J, LogQuery(token=resume)).records == ()
        assert seen == b"".join(b"line %d\n" % n for n in range(10))

    def test_a_follower_may_begin_before_the_first_byte(self, logs: LogStore) -> None:
        resume = logs.read(P, J).resume
        logs.append(P, J, 0, [(1, b"first")])
        assert logs.read(P, J, LogQuery(token=resume)).records == ((1, b"first"),)

    def test_nothing_comes_before_the_first_byte(self, logs: LogStore) -> None:
        logs.append(P, J, 0, [(1, b"first")])
        page = logs.read(P, J, LogQuery(token="0.0", descending=True))
        assert (page.records, page.next_token) == ((), None)

    @pytest.mark.parametrize("page", [{"limit": 0}, {"max_bytes": 0}])
    def test_a_page_has_room_for_something(self, logs: LogStore, page: dict[str, Any]) -> None:
        with pytest.raises(Invalid, match="Ask for at least one"):
            logs.read(P, J, LogQuery(**page))

    @pytest.mark.parametrize("token", ["", "x", "1", "1.", ".1", "-1.0", "1.-1", "1.1.1", "9" * 30 + ".0", "٣.١"])
    def test_a_malformed_token_is_refused(self, logs: LogStore, token: str) -> None:
        logs.append(P, J, 0, [(1, b"first")])
        for descending in (False, True):
            with pytest.raises(Invalid, match="token"):
                logs.read(P, J, LogQuery(token=token, descending=descending))

    @pytest.mark.parametrize("part", ["", "..", "a/b", "../x", "a\0b", "x" * 200])
    def test_an_id_that_could_lead_elsewhere_is_refused(self, logs: LogStore, part: str) -> None:
        for ids in ((part, J), (P, part)):
            with pytest.raises(Invalid, match="isn't an id"):
                logs.append(*ids, 0, [(1, b"x")])
            with pytest.raises(Invalid, match="isn't an id"):
                logs.read(*ids)

    def test_delete_and_begin_anew(self, logs: LogStore) -> None:
        for n in range(5):
            logs.append(P, J, n, [(1, b"x")])
        logs.delete(P, J)
        logs.delete(P, J)
        assert read_all(logs) == []
        assert logs.append(P, J, 0, [(2, b"new")]) == 3
        assert read_all(logs) == [(2, b"new")]

    def test_any_history_of_appends_gives_the_stream(self, logs: LogStore) -> None:
        """Seeded: repeats, overlaps and gaps, read in pages of any size, both ways."""
        for seed in seeds(self.seeds):
            job, rng = f"job-{seed}", random.Random(seed)
            stream = bytes(rng.choices(b"abc\n\xe2\x98\x83", k=self.length))
            end = 0
            while end < len(stream):
                offset = max(0, end + rng.choice([0, 0, 0, -20, -200, 30]))
                cuts = sorted(offset + rng.randrange(0, 120) for _ in range(5))
                records = [(a, stream[a:b]) for a, b in itertools.pairwise([offset, *cuts])]
                reached = offset + sum(len(data) for _, data in records)
                expected = end if offset > end else max(end, reached)
                assert logs.append(P, job, offset, records) == expected
                end = expected
            for limit, most in ((1, 1000), (7, 50), (1000, 64), (1000, 10_000)):
                for descending in (False, True):
                    token, parts = None, []
                    while True:
                        page = logs.read(
                            P, job, LogQuery(token=token, limit=limit, max_bytes=most, descending=descending)
                        )
                        parts += [data for _, data in page.records]
                        token = page.next_token
                        if token is None:
                            break
                    assert b"".join(parts[::-1] if descending else parts) == stream
