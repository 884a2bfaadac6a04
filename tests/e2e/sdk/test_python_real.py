"""The guide to the SDK for Python: its blocks are one program, run where the wheel alone is installed, against a real
server; and what it prints is what the guide shows."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.installed import install, program
from tests.harness.server import PATIENCE, ROOT, Server

GUIDE = ROOT / "docs" / "guides" / "python-sdk.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
END = "--- the end of a block"


TYPED = """\
from dstack_serverless import AsyncClient, Client
from dstack_serverless.api import runs
from dstack_serverless.types import Run


def do(client: Client) -> float:
    run: Run = client.runs.get("x")
    also: Run = client.send(runs.get("main", run_name="x"))
    run["nothing"]  # wrong
    client.runs.get(nme="x")  # wrong
    client.runs.wait("x", "sometime")  # wrong
    return also["cost"]


async def do_too(client: AsyncClient) -> str:
    async for piece in client.runs.logs("x"):
        piece.decode()
    for piece in client.runs.logs("x"):  # wrong
        pass
    await client.runs.wait("x", "done")
    return (await client.runs.get("x"))["cost"]  # wrong
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("fresh"), "sdk")


def test_a_type_checker_finds_what_is_wrong_in_a_program(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    options = ["--strict", "--python-executable", str(programs / "python"), "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "program.py"], cwd=tmp_path, capture_output=True, text=True
    )
    wrong = [number for number, line in enumerate(TYPED.splitlines(), start=1) if line.endswith("# wrong")]
    assert [int(line) for line in re.findall(r"(?m)^program\.py:(\d+): error", done.stdout)] == wrong, done.stdout[
        :3000
    ]


def test_the_guide_prints_what_it_shows(programs: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    server = Server(home, env={"DSTACK_AGENT_RUNTIME": "process"}, command=(str(program()),))
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    script = home / "program.py"
    script.write_text("".join(f"{code}print({END!r})\n" for code, _ in blocks))
    with contextlib.closing(server):
        server.start()
        command = [str(programs / "python"), "-P", str(script)]
        done = subprocess.run(
            command, cwd=home, env=server.environment(), capture_output=True, text=True, timeout=5 * PATIENCE
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(blocks) > 5 and done.stdout.split(f"{END}\n")[:-1] == [shown for _, shown in blocks]
