"""The SDK for TypeScript: it is built, its own tests pass, and it is packed; and the guide's blocks are one program,
whose types are checked against the package and which prints what the guide shows, with a real server."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chalicelib import api
from tests.harness.server import PATIENCE, ROOT, Server

SOURCE = ROOT / "sdk" / "typescript"
TOOLS = ROOT / ".venvs" / "typescript" / "node_modules"
GUIDE = ROOT / "docs" / "guides" / "typescript-sdk.md"
BLOCK = re.compile(r"```ts\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
END = "--- the end of a block"
OPTIONS = ("--module", "nodenext", "--target", "es2022", "--strict", "--types", "node", "--outDir", ".")


def run(folder: Path, *command: str, **env: str) -> str:
    where = {"PATH": os.environ["PATH"], "HOME": str(folder), "npm_config_update_notifier": "false", **env}
    done = subprocess.run(command, cwd=folder, env=where, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its sources, with its tools."""
    if not (TOOLS.parent / ".installed").exists():
        pytest.skip("its tools aren't installed here; `make test` installs them into .venvs")
    folder = tmp_path_factory.mktemp("typescript") / "sdk"
    made = shutil.ignore_patterns("build", "dist", "node_modules", "schema.ts", "*.tgz")
    shutil.copytree(SOURCE, folder, ignore=made)
    (folder / "node_modules").symlink_to(TOOLS)
    run(folder, "npm", "run", "build", OPENAPI=str(Path(api.__file__).parent / "openapi.json"))
    return folder


def test_its_own_tests_pass(folder: Path) -> None:
    assert re.search(r"(?m)^# pass [1-9]\d*$", run(folder, "npm", "test")) is not None


def test_the_guide_prints_what_it_shows(folder: Path, tmp_path: Path) -> None:
    run(folder, "npm", "pack", "--silent", "--pack-destination", str(tmp_path))
    (packed,) = tmp_path.glob("*.tgz")
    modules = tmp_path / "node_modules"
    modules.mkdir()
    shutil.unpack_archive(packed, tmp_path, "gztar")
    (tmp_path / "package").rename(modules / "dstack-serverless")
    for needed in ("openapi-fetch", "openapi-typescript-helpers", "@types", "undici-types"):
        (modules / needed).symlink_to(TOOLS / needed)
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    program = "".join(f'{code}console.log("{END}");\n' for code, _ in blocks)
    (tmp_path / "program.ts").write_text(program)
    run(tmp_path, "node", str(TOOLS / "typescript7" / "bin" / "tsc"), *OPTIONS, "program.ts")
    home = tmp_path / "home"
    home.mkdir()
    with contextlib.closing(Server(home, env={"DSTACK_AGENT_RUNTIME": "process"})) as server:
        server.start()
        env = {"DSTACK_SERVER_URL": server.url, "DSTACK_TOKEN": server.token, "DSTACK_PROJECT": "main"}
        shown = run(tmp_path, "node", "program.js", **env)
    assert len(blocks) > 4 and shown.split(f"{END}\n")[:-1] == [expected for _, expected in blocks]
