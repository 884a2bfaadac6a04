"""docs/operate/watch.md: what it shows is what a server answers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from chalicelib.runtime.probes import LEAST_FREE
from tests.harness.server import ROOT, Server, until

PAGE = (ROOT / "docs/operate/watch.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"(?m)^\$ curl -s http://127\.0\.0\.1:3000(\S+)\n(.*)$", PAGE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("watch") / "home")
    one.home.mkdir()
    try:
        yield one.start("--no-local-fleet")
    finally:
        one.close()


def curl(server: Server, path: str) -> str:
    return subprocess.run(["curl", "-s", server.url + path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("path", "answer"), SHOWN)
def test_a_probe_answers_what_the_page_shows(server: Server, path: str, answer: str) -> None:
    until(f"{path} to answer as the page says", lambda: curl(server, path) == answer)


def test_its_numbers_are_the_codes() -> None:
    assert f"less than {LEAST_FREE // 2**20} MB" in PAGE and len(SHOWN) == 2
