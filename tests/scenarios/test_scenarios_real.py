"""Every scenario on both composition roots, against one and the same text."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators import ministack
from tests.harness.roots import LambdaServer
from tests.harness.server import Server
from tests.scenarios.script import User, behave, parse, play, render

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.fixture(scope="module", params=["embedded", "lambda"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        yield from _alive(Server(home, flags=("--fake-cloud", "--no-local-fleet")))
        return
    with ministack.running() as emulator:
        yield from _alive(LambdaServer(home, endpoint=emulator.url))


def _alive(server: Server) -> Iterator[Server]:
    try:
        yield server.start()
    finally:
        server.close()


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_a_scenario_reads_the_same_on_every_root(path: Path, server: Server, tmp_path: Path) -> None:
    steps = parse(path.read_text())
    user = User(server, tmp_path, path.stem)
    user.arrive()
    behave(server, "{}")
    got = render(play(steps, user))
    if os.environ.get("UPDATE_GOLDEN") and not isinstance(server, LambdaServer):
        path.write_text(got)
    wanted = path.read_text()
    assert got == wanted, "\n".join(difflib.unified_diff(wanted.splitlines(), got.splitlines(), "wanted", "got", n=1))


def test_there_are_scenarios_and_each_is_written_as_it_is_rendered() -> None:
    assert len(SCRIPTS) >= 10
    for path in SCRIPTS:
        assert render(parse(path.read_text())) == path.read_text(), f"{path.name}: not as `render` writes it"
