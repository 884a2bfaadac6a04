"""The genuine client and ours send the same, refuse the same, and differ only where `differences` says so.

What the genuine client does is known of most cases (`recorded`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness import golden
from tests.wire import recorded
from tests.wire.clients import PEER, Client, Sent, client, lay_out
from tests.wire.corpus import Case, corpus
from tests.wire.differences import KINDER, OTHERWISE, PROVEN, STRICTER, cases
from tests.wire.far import Far
from tests.wire.recorded import NOTHING, Did, Recording
from tests.wire.recorder import Recorder

PLACE = re.compile(r"^\S+\.ya?ml:\d+:\d+: ", re.MULTILINE)
BATCH = 20  # cases


class Runs:
    """What the two did with each case, as far as that was needed, for as long as a `with` lasts."""

    def __init__(self, folder: Path, recording: Recording) -> None:
        self.folder, self.recording = folder, recording
        self.did: dict[str, Did] = {}  # the genuine client, just now
        self.sent: dict[str, dict[str, Sent]] = {"peer": {}, "ours": {}}
        self._known: dict[str, set[str]] = {"peer": set(), "ours": set()}  # the themes that a client has built all for
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Runs:
        with ExitStack() as stack:
            self._recorder, self._far = stack.enter_context(Recorder()), stack.enter_context(Far(self.folder))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def play(self, names: list[str], *kinds: str) -> None:
        """The first case of each theme goes before, and once more: what a client builds for it stays for all the
        others, some of which share a process."""
        played = [cases()[name] for name in names]
        for case in played:
            if any(case.theme not in self._known[kind] for kind in kinds):
                self._play(case, kinds, stays=True)
        for *others, last in (played[start : start + BATCH] for start in range(0, len(played), BATCH)):
            for case in others:
                self._play(case, kinds, more=True)
            self._play(last, kinds)

    def _play(self, case: Case, kinds: tuple[str, ...], *, stays: bool = False, more: bool = False) -> None:
        place = self.folder / case.name
        shutil.rmtree(place, ignore_errors=True)
        lay_out(case, place, self._recorder.url)
        for kind in kinds:
            self._known[kind].add(case.theme)
            self.sent[kind][case.name] = sent = self._client(kind).run(case, place, stays=stays, more=more)
            if kind == "peer":
                self.did[case.name] = Did.of(case, sent, self.folder, self._recorder.url)

    def _client(self, kind: str) -> Client:
        if kind not in self._clients:
            one = client(kind, self._recorder, self._far, self.folder / "home")
            self._clients[kind] = self._open.enter_context(one)
        return self._clients[kind]

    def genuine(self, name: str) -> Did:
        did = self.did.get(name) or self.recording.did(cases()[name])
        assert did
        return did

    def digest(self, said: Any) -> str:
        """As `Did` has it."""
        return recorded.digest_of(said, self.folder, self._recorder.url)

    def both(self, name: str) -> tuple[Sent, Sent]:
        """All that the genuine client and ours sent."""
        if name not in self.sent["peer"]:
            self.play([name], "peer", "ours")
        return self.sent["peer"][name], self.sent["ours"][name]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    if not (PEER / "dstack").exists():
        reason = "the genuine client isn't installed here; `make test` installs it into .venvs/peer"
        pytest.fail(reason) if os.environ.get("REQUIRE_REAL") else pytest.skip(reason)
    wanted = sorted({item.callspec.params["name"] for item in request.session.items if _is_case(item)})
    recording = Recording.read(recorded.FILE.read_text(encoding="utf-8"))
    unknown = {name for name in wanted if golden.WRITING or not recording.did(cases()[name])}
    asked = unknown | {case.name for case in recording.sample(cases()[name] for name in wanted or cases())}
    with Runs(tmp_path_factory.mktemp("wire"), recording) as found:
        found.play(sorted(asked), "peer", "ours")
        found.play([name for name in wanted if name not in asked], "ours")
        if golden.WRITING:
            anew = recording.written_anew(found.did, cases())
            recorded.FILE.write_text(anew.text(), encoding="utf-8")
        yield found


def _is_case(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and hasattr(item, "callspec")


def named(*, refused: bool, command: str = "apply") -> list[str]:
    return [case.name for case in corpus() if case.refused == refused and (refused or case.command == command)]


def readable(body: object) -> list[str]:
    return json.dumps(body, indent=1, sort_keys=True).splitlines()


def say_the_same(runs: Runs, name: str) -> None:
    case = cases()[name]
    if runs.digest(runs.sent["ours"][name].said(case.command)) == runs.genuine(name).sent != NOTHING:
        return
    peer, own = runs.both(name)
    assert peer.said(case.command), f"the genuine client refused\n{case}\n{peer.output}"
    assert own.said(case.command), f"we refused\n{case}\n{own.output}"
    assert readable(own.said(case.command)) == readable(peer.said(case.command)), str(case)
    pytest.fail(f"Both send the same, but {recorded.FILE.name} has it otherwise. Write it anew: {recorded.ANEW}")


@pytest.mark.parametrize("name", named(refused=False))
def test_both_send_the_same(runs: Runs, name: str) -> None:
    say_the_same(runs, name)
    assert runs.sent["ours"][name].status == runs.genuine(name).status == 1, (
        "the recorder's refusal is an error to both"
    )


@pytest.mark.parametrize("name", named(refused=False, command="init"))
def test_both_make_the_same_known(runs: Runs, name: str) -> None:
    say_the_same(runs, name)
    assert runs.sent["ours"][name].status == runs.genuine(name).status == 0


@pytest.mark.parametrize("name", named(refused=True))
def test_both_refuse(runs: Runs, name: str) -> None:
    genuine, own, case = runs.genuine(name), runs.sent["ours"][name], cases()[name]
    assert genuine.sent == NOTHING and genuine.status != 0, f"the genuine client sent\n{case}"
    assert own.plan is None, f"we sent\n{case}"
    assert own.status in (1, 2) and not own.crashed, own.output
    if not name.startswith("refused-around"):  # then the mistake is in the file
        assert PLACE.search(own.output), own.output
    assert teaches(own.output), own.output


def teaches(output: str) -> bool:
    """Whether it also says what to do: in brackets, by example, or on a separate line."""
    problem, *more = output.strip().splitlines()
    return problem.endswith(")") or " as in `" in problem or bool(more)


@pytest.mark.parametrize("name", PROVEN)
def test_differences_are_as_described(runs: Runs, name: str) -> None:
    genuine, own, difference = runs.genuine(name), runs.sent["ours"][name], PROVEN[name]
    assert not own.crashed, own.output
    assert genuine.crashed == difference.crash, str(cases()[name])
    assert (genuine.sent == NOTHING) == (difference.kind == KINDER), str(cases()[name])
    assert (own.plan is None) == (difference.kind == STRICTER), own.output
    if difference.kind == STRICTER:
        assert own.status in (1, 2) and teaches(own.output), own.output
    if difference.kind == OTHERWISE:
        body = own.body()
        for path, there, here in difference.changed:
            assert exchanged(body["body"], path, there) == here
        if runs.digest(body) != genuine.sent:
            peer, _ = runs.both(name)
            assert readable(body) == readable(peer.body()), "they differ in nothing else"
            pytest.fail(f"{recorded.FILE.name} has it otherwise. Write it anew: {recorded.ANEW}")


def exchanged(body: Any, path: str, value: Any) -> Any:
    """What was at a path, where the value is now."""
    *above, last = path.split(".")
    for part in above:
        body = body[part]
    before, body[last] = body[last], value
    return before


def test_it_still_does_what_is_recorded(runs: Runs) -> None:
    known = {name: did for name in runs.did if (did := runs.recording.did(cases()[name]))}
    assert known or golden.WRITING
    for name, recording in known.items():
        now = runs.did[name]
        assert (now.status, now.sent) == (recording.status, recording.sent), str(cases()[name])
