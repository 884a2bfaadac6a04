"""Runs on the simulated cloud share a volume: a real disk, formatted, mounted and let go by the real agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import loops
from tests.harness.server import Server

pytestmark = loops.needed

VOLUME = "type: volume\nname: data\nbackend: aws\nregion: sim-east\nsize: 1GB\n"
FLEET = "type: fleet\nname: cloud\nnodes: 0..1\n"
TASK = "type: task\nname: {name}\ncommands: ['{command}']\nvolumes: [\"data:/dstack-test-data\"]\n"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--fake-cloud", "--fake-cloud-name", "aws", "--no-local-fleet")
    one = Server(tmp_path_factory.mktemp("server") / "home", flags=flags)
    one.home.mkdir()
    try:
        one.start()
        yield one
    finally:
        one.close()


def apply(server: Server, text: str) -> str:
    (server.home / "it.dstack.yml").write_text(text)
    return server.cli("apply", "-y", "-f", str(server.home / "it.dstack.yml"))


def test_what_one_run_writes_the_next_one_reads(server: Server) -> None:
    apply(server, VOLUME)
    apply(server, FLEET)
    first = apply(server, TASK.format(name="first", command="echo kept > /dstack-test-data/file; echo written"))
    assert "written" in first, first
    second = apply(server, TASK.format(name="second", command="cat /dstack-test-data/file"))
    assert "kept" in second, second
    assert not Path("/dstack-test-data").exists(), "the machine is as it was before"
