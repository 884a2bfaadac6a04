"""What is timed of an answer, and what isn't one."""

from __future__ import annotations

from collections import Counter

from chalicelib.domain.instants import SECOND
from chalicelib.domain.latencies import cell_of
from chalicelib.domain.services import Traffic
from chalicelib.serving.answer_times import AnswerTimes
from chalicelib.serving.traffic_counts import Counts


class Timed:
    """A request that came at 5 s."""

    def __init__(self) -> None:
        self.at, self.counts = 5 * SECOND, Counts("server")
        self.counts.begins("run", self.at)
        self.times = AnswerTimes(self.counts, "run", lambda: self.at)

    def part(self, at: int, data: bytes) -> None:
        self.at = at * SECOND
        self.times.part(data)

    def ends(self, at: int) -> Traffic:
        self.times.ends(at * SECOND)
        self.counts.ends("run", at * SECOND)
        (found,) = self.counts.report(Counter(), at * SECOND)
        return found


def cells(found: Traffic) -> tuple[list[int], list[int]]:
    """In which cells it was counted: until its first byte, and until its last."""
    both = found.first_byte.histogram, found.whole.histogram
    first, last = ([cell for cell, count in enumerate(each) for _ in range(count)] for each in both)
    return first, last


def test_its_first_part_that_has_bytes_and_its_end() -> None:
    request = Timed()
    request.times.begins(200, [])
    for at, data in ((6, b""), (8, b"a"), (20, b"b")):
        request.part(at, data)
    assert cells(request.ends(50)) == ([cell_of(3)], [cell_of(45)])


def test_an_answer_without_a_body_has_both_at_its_end() -> None:
    request = Timed()
    request.times.begins(204, [])
    request.part(6, b"")
    assert cells(request.ends(7)) == ([cell_of(2)], [cell_of(2)])


def test_what_the_door_says_in_place_of_a_replica_isnt_timed() -> None:
    request = Timed()
    found = request.ends(6)
    request.times.begins(502, [])
    request.part(7, b"no replica")
    assert cells(found) == ([], []) and not found.answers
    assert cells(request.counts.report(Counter(), 8 * SECOND)[0]) == ([], [])


def test_a_clock_that_is_set_back_makes_no_time_negative() -> None:
    request = Timed()
    request.times.begins(200, [])
    request.part(1, b"a")
    assert cells(request.ends(2)) == ([0], [0])
