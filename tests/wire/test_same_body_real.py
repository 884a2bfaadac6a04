"""The genuine client and ours send the same, refuse the same, and differ only where `differences` says so."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.wire.clients import PEER, Sent, client, lay_out
from tests.wire.corpus import Case, corpus
from tests.wire.differences import DIFFERENCES, KINDER, OTHERWISE, STRICTER
from tests.wire.far import Far
from tests.wire.recorder import Recorder

PLACE = re.compile(r"^\S+\.ya?ml:\d+:\d+: ", re.MULTILINE)
PROVEN = {one.case(number).name: one for number, one in enumerate(DIFFERENCES, start=1)}
CASES = {case.name: case for case in corpus()}
BATCH = 20  # cases
CASES |= {name: one.case(number) for number, (name, one) in enumerate(PROVEN.items(), start=1)}


@dataclass(frozen=True)
class Both:
    """What the two did with one case."""

    peer: Sent
    own: Sent


def played(cases: list[Case], folder: Path) -> dict[str, Both]:
    """Every case through both clients. One of each theme goes first and once more: what the clients build for it stays
    for all the others, some of which share a process."""
    first = {case.name.rpartition("-")[0]: case for case in reversed(cases)}
    batches = [cases[start : start + BATCH] for start in range(0, len(cases), BATCH)]
    done = {}
    with (
        Recorder() as recorder,
        Far(folder) as far,
        client("peer", recorder, far, folder / "home") as peer,
        client("ours", recorder, far, folder / "home") as ours,
    ):

        def play(case: Case, *, stays: bool = False, more: bool = False) -> None:
            place = folder / case.name
            shutil.rmtree(place, ignore_errors=True)
            lay_out(case, place, recorder.url)
            sent = (each.run(case, place, stays=stays, more=more) for each in (peer, ours))
            done[case.name] = Both(*sent)

        for case in first.values():
            play(case, stays=True)
        for *others, last in batches:
            for case in others:
                play(case, more=True)
            play(last)
    return done


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    if not (PEER / "dstack").exists():
        reason = "the genuine client isn't installed here; `make test` installs it into .venvs/peer"
        pytest.fail(reason) if os.environ.get("REQUIRE_REAL") else pytest.skip(reason)
    wanted = {item.callspec.params["name"] for item in request.session.items if _is_case(item)}
    return played([CASES[name] for name in sorted(wanted)], tmp_path_factory.mktemp("wire"))


def _is_case(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and hasattr(item, "callspec")


def named(*, refused: bool, command: str = "apply") -> list[str]:
    return [case.name for case in corpus() if case.refused == refused and (refused or case.command == command)]


def readable(body: object) -> list[str]:
    return json.dumps(body, indent=1, sort_keys=True).splitlines()


@pytest.mark.parametrize("name", named(refused=False))
def test_both_send_the_same(runs: dict[str, Both], name: str) -> None:
    both = runs[name]
    assert both.peer.plan, f"the genuine client refused\n{CASES[name]}\n{both.peer.output}"
    assert both.own.plan, f"we refused\n{CASES[name]}\n{both.own.output}"
    assert readable(both.own.body()) == readable(both.peer.body()), str(CASES[name])
    assert both.own.status == both.peer.status == 1, "the recorder's refusal is an error to both"


@pytest.mark.parametrize("name", named(refused=False, command="init"))
def test_both_make_the_same_known(runs: dict[str, Both], name: str) -> None:
    both = runs[name]
    assert both.own.status == both.peer.status == 0, f"{both.peer.output}\n{both.own.output}"
    assert readable(both.own.repos()) == readable(both.peer.repos()) != [], str(CASES[name])


@pytest.mark.parametrize("name", named(refused=True))
def test_both_refuse(runs: dict[str, Both], name: str) -> None:
    both, case = runs[name], CASES[name]
    assert both.peer.plan is None and both.peer.status != 0, f"the genuine client sent\n{case}"
    assert both.own.plan is None, f"we sent\n{case}"
    assert both.own.status in (1, 2) and not both.own.crashed, both.own.output
    if not name.startswith("refused-around"):  # then the mistake is in the file
        assert PLACE.search(both.own.output), both.own.output
    assert teaches(both.own.output), both.own.output


def teaches(output: str) -> bool:
    """Whether it also says what to do: in brackets, by example, or on a separate line."""
    problem, *more = output.strip().splitlines()
    return problem.endswith(")") or " as in `" in problem or bool(more)


@pytest.mark.parametrize("name", PROVEN)
def test_differences_are_as_described(runs: dict[str, Both], name: str) -> None:
    both, difference = runs[name], PROVEN[name]
    assert not both.own.crashed, both.own.output
    assert both.peer.crashed == difference.crash, both.peer.output
    assert (both.peer.plan is None) == (difference.kind == KINDER), both.peer.output
    assert (both.own.plan is None) == (difference.kind == STRICTER), both.own.output
    if difference.kind == STRICTER:
        assert both.own.status in (1, 2) and teaches(both.own.output), both.own.output
    if difference.kind == OTHERWISE:
        peer, own = both.peer.body()["body"], both.own.body()["body"]
        for path, expected, here in difference.changed:
            assert (taken(peer, path), taken(own, path)) == (expected, here)
        assert readable(own) == readable(peer), "they differ in nothing else"


def taken(body: Any, path: str) -> Any:
    """The value at a path, which is taken out."""
    *above, last = path.split(".")
    for part in above:
        body = body[part]
    return body.pop(last)
