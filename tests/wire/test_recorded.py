"""What the genuine client did is read only for just this case, and only from a file that is as it was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.wire import keys
from tests.wire.clients import Sent
from tests.wire.corpus import Case
from tests.wire.differences import cases
from tests.wire.recorded import ANEW, FILE, NOTHING, Did, Recording, digest_of, given, programs, setting
from tests.wire.recorder import Request

PLAIN, CHECKOUT = Case("a-1", "type: task\n"), Case("b-1", "type: task\n", git=True)
SENT, CRASHED = Did(1, "0123456789ab"), Did(1, NOTHING, crashed=True)
BOTH = {"a-1": PLAIN, "b-1": CHECKOUT}


@pytest.fixture
def made() -> Recording:
    return Recording().written_anew({"a-1": SENT, "b-1": CRASHED}, BOTH)


@pytest.mark.slow
def test_every_case_is_recorded_as_it_is_now() -> None:
    """Else each run would drive the genuine client for it."""
    recording = replace(Recording.read(FILE.read_text(encoding="utf-8")), programs=programs())
    assert [name for name, case in cases().items() if not recording.did(case)] == [], ANEW
    assert recording.cases.keys() == cases().keys(), ANEW


def test_it_is_read_as_it_was_written_and_not_when_it_was_edited(made: Recording) -> None:
    read = Recording.read(made.text())
    assert read == made and (read.did(PLAIN), read.did(CHECKOUT)) == (SENT, CRASHED)
    for old, new in (("0123456789ab", "0123456789ac"), (" crashed", ""), ("a-1", "a-2")):
        with pytest.raises(AssertionError, match="edited by hand"):
            Recording.read(made.text().replace(old, new))


def test_what_is_known_is_of_just_this_case_in_just_this_setting(made: Recording) -> None:
    changes: dict[str, Any] = {
        "file": "type: service\n", "flags": ("-R",), "env": {"A": "b"}, "files": {"a": "b"}, "given": "-",
        "before": "ls", "stored": {}, "submitted": True, "command": "init", "name": "a-2",
    }  # fmt: skip
    assert [name for name in changes if made.did(replace(PLAIN, **{name: changes[name]}))] == []
    assert replace(made, setting="another").did(PLAIN) is None
    elsewhere = replace(made, programs="another")
    assert (elsewhere.did(PLAIN), elsewhere.did(CHECKOUT)) == (SENT, None), "only a checkout needs git"


def test_it_is_written_anew_case_by_case(made: Recording) -> None:
    later = {"a-1": PLAIN, "c-1": Case("c-1", "type: fleet\n")}
    assert made.written_anew({"c-1": SENT}, later).cases == {
        "a-1": (given(PLAIN), SENT),
        "c-1": (given(later["c-1"]), SENT),
    }
    old = replace(made, setting="another").written_anew({"c-1": SENT}, later)
    assert old.setting == setting() and old.cases.keys() == {"c-1"}, "of another setting nothing is kept"


def test_the_sample_has_one_of_each_theme(made: Recording) -> None:
    themes = {case.theme for case in cases().values()}
    first, second = (each.sample(cases().values()) for each in (made, replace(made, setting="another")))
    assert len(first) == len(themes) and {case.theme for case in first} == themes
    assert first == made.sample(reversed(cases().values())) != second


def test_a_digest_is_of_what_was_sent_and_not_of_where_or_with_which_key() -> None:
    def did(folder: str, key: str, path: str = "/api/project/main/runs/get_plan") -> Did:
        request = Request(path, {"run_spec": {"path": f"{folder}/a-1", "key": key, "url": "http://h:1"}})
        return Did.of(PLAIN, Sent(1, "Traceback (most recent call last)", [request]), Path(folder), "http://h:1")

    public = keys.filled("<ed25519 key>.pub")
    assert did("/one", public) == did("/two", "<ed25519 key>.pub\n") != did("/one", "another")
    assert did("/one", public).sent == digest_of(
        {
            "body": {"run_spec": {"key": public, "path": "{folder}/a-1", "url": "{url}"}},
            "call": "runs/get_plan",
            "repos": [],
        },
        Path("/three"),
        "http://h:2",
    )
    assert did("/one", public, "/api/users/get_my_user") == Did(1, NOTHING, crashed=True)
