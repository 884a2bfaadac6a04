"""Logs page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.store import nouns
from chalicelib.store.logs import Piece
from chalicelib.usecases.runs import runs
from tests.api.rig import Rig
from tests.api.v1.rest import TASK, Client
from tests.world.time import NOW


@dataclass(frozen=True)
class Logged:
    api: Client
    job: Job

    @property
    def url(self) -> str:
        return f"{self.api.runs}/one/logs"

    def write(self, *texts: bytes) -> None:
        pieces: list[Piece] = [(NOW + number, text) for number, text in enumerate(texts)]
        self.api.plane.logs.append(self.job.project_id, self.job.id, 0, pieces)

    def texts(self, query: str = "") -> list[str]:
        return [line["text"] for line in self.api.ok("GET", f"{self.url}?{query}")["items"]]

    def retried(self) -> str:
        """The id of a later submission of the job."""
        later = self.job.with_(id="11111111-1111-1111-1111-111111111111", submission_num=1, version=0)
        ended = self.job.with_(status=JobStatus.failed, due_at=None)
        self.api.plane.store.commit([nouns.put(ended), nouns.put(later)])
        return later.id


@pytest.fixture
def logged(rig: Rig) -> Logged:
    api = Client.of(rig)
    api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    row = runs.get(api.plane, rig.project, name="one", run_id=None)
    return Logged(api, row.histories()[0][-1])


@pytest.mark.parametrize("query", ["limit=2", "limit=2&newest_first=true"])
def test_the_next_page_is_of_the_same_job(logged: Logged, query: str) -> None:
    logged.write(*(b"%d" % number for number in range(5)))
    first = logged.api.call("GET", f"{logged.url}?{query}")
    link, cursor = first.headers["Link"].partition(">")[0].removeprefix("<"), orjson.loads(first.body)["next"]
    later = logged.retried()
    assert logged.api.ok("GET", f"{logged.url}?{query}")["job"] == later
    expected = ["2", "3"] if query == "limit=2" else ["2", "1"]
    for url in (link, f"{logged.url}?{query}&cursor={cursor}", f"{link}&job={logged.job.id}"):
        page = logged.api.ok("GET", url)
        assert ([line["text"] for line in page["items"]], page["job"]) == (expected, logged.job.id)
    assert logged.api.refused("GET", f"{link}&job={later}")[0] == 422


@pytest.mark.parametrize("query", ["", "newest_first=true"])
def test_a_character_that_was_written_in_two_pieces_is_whole(logged: Logged, query: str) -> None:
    word = "caf\u00e9 \u20ac".encode()
    logged.write(word[:4], word[4:7], word[7:], b"\xff!")
    texts = logged.texts(query)
    assert texts == ["caf", "\u00e9 ", "\u20ac", "\ufffd!"][:: -1 if query else 1]


def test_a_log_that_ends_within_a_character_shows_that(logged: Logged) -> None:
    logged.write(b"caf\xc3")
    assert logged.texts() == ["caf\ufffd"]


def test_a_follower_continues_at_the_end_with_what_was_written_since(logged: Logged) -> None:
    def read(cursor: str) -> dict[str, Any]:
        return logged.api.ok("GET", f"{logged.url}?limit=2{cursor}")

    empty = read("")
    assert (empty["items"], empty["next"]) == ([], None)
    logged.write(b"a", b"b", b"c")
    first = read(f"&cursor={empty['resume']}")
    assert first["resume"] == first["next"]
    second = read(f"&cursor={first['resume']}")
    assert [line["text"] for line in second["items"]] == ["c"] and second["next"] is None
    assert read(f"&cursor={second['resume']}")["items"] == []
    logged.write(b"a", b"b", b"c", b"d")
    assert [line["text"] for line in read(f"&cursor={second['resume']}")["items"]] == ["d"]
    assert logged.api.ok("GET", f"{logged.url}?newest_first=true")["resume"] is None
