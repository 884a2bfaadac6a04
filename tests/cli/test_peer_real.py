"""The genuine client beside ours: `offer` asks the server the same, and the flags that its help shows are known."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.connection.config import ProjectEntry, config_path, save_projects
from tests.cli.applying.test_flags import plan
from tests.cli.known_flags import KNOWN
from tests.cli.plane import Plane
from tests.wire.clients import PEER, shared

pytestmark = pytest.mark.skipif(not (PEER / "dstack").exists(), reason="`make test` brings the genuine client")
OFFERS = [
    "",
    "--idle-duration 1h",
    "--retry",
    "--no-retry",
    "--retry-duration 2h",
    "--max-duration 3h --dont-destroy",
    "-R",
    "--fleet gpu --spot-auto --max-price 2",
    "--group-by gpu --retry",
    "--gpu A100:2 --cpu 8.. -b aws -r here",
    "--max-offers 3 --full-offers --unallocated --instance-type m5 --no-profile",
]
PATHS = [path for path in KNOWN if path != "destroy"]
Run = Callable[[str, str], str]


@pytest.fixture
def plane() -> Iterator[Plane]:
    """With a real connection to it."""
    with Plane().on_http() as found:
        yield found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peer")


@pytest.fixture(scope="module")
def run(home: Path) -> Run:
    """A command line of either client, in a child of a process that has loaded the client; gives what it printed."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": "100", "NO_COLOR": "1"}

    def once(kind: str, line: str) -> str:
        output = home / "output"
        shared(kind).run({"argv": line.split(), "cwd": str(home), "env": env, "output": str(output), "input": None})
        return output.read_text(encoding="utf-8")

    return once


@pytest.mark.parametrize("flags", OFFERS)
def test_offer_asks_the_same(plane: Plane, home: Path, run: Run, flags: str) -> None:
    plane.answers |= {"/runs/get_plan": plan, "/api/projects/main/get": {}, "/gpus/list": {"gpus": []}}
    save_projects(config_path(home), [ProjectEntry("main", plane.url, "t", True)])
    bodies: list[Any] = []
    for kind in ("peer", "ours"):
        plane.requests.clear()
        run(kind, f"offer --json {flags}")
        bodies.append([one.body for one in plane.requests if one.path.endswith(("/get_plan", "/gpus/list"))])
    genuine, own = bodies
    assert genuine == own
    assert len(own) == 1


@pytest.mark.parametrize("path", PATHS)
def test_every_flag_of_its_help_is_known(run: Run, path: str) -> None:
    kinds = ("task", "service", "fleet", "preset")
    lines = [f"apply -h {kind}" for kind in kinds] if path == "apply" else [f"{path} --help"]
    shown = [line.strip() for text in (run("peer", line) for line in lines) for line in text.splitlines()]
    heads = [re.split(r"  +", line)[0] for line in shown if line.startswith("-")]
    found = {flag for head in heads for flag in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", head)}
    assert found - {"-h", "--help"} == set(KNOWN[path].split())
