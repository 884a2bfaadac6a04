"""What the guides show is what a reader who types it sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.guides import FLAGS, PAGES, play_page, same
from tests.harness.server import Server
from tests.scenarios.script import User, behave


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("guides"), flags=FLAGS)
    try:
        yield one.start()
    finally:
        one.close()


@pytest.mark.parametrize("path", PAGES, ids=[path.stem for path in PAGES])
def test_a_guide_shows_what_happens(path: Path, server: Server, tmp_path: Path) -> None:
    behave(server, "{}")
    _, shown = play_page(path, server, tmp_path)
    user = User(server, tmp_path, path.stem)
    odd = [f"$ {one.command}\n--- shown\n{one.written}--- seen\n{one.now}" for one in shown if not same(one, user)]
    assert shown and not odd, "\n".join(odd)
