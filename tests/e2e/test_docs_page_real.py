"""`/docs` in a real browser: it shows the API's document, loads nothing else, and breaks none of its own rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.test_console_real import BROWSER, HERE
from tests.harness.server import PATIENCE, Server


def test_the_page_shows_the_document(tmp_path: Path) -> None:
    if not (BROWSER / ".installed").exists():
        pytest.skip("the browser isn't installed here; `make test` installs it into .venvs")
    server = Server(tmp_path / "home")
    server.home.mkdir()
    try:
        server.start()
        done = subprocess.run(
            ["node", str(HERE / "docs.mjs"), json.dumps({"url": server.url})],
            cwd=BROWSER,
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE,
        )
    finally:
        server.close()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == [] and found["loaded"] == ["/docs", "/openapi.json"]
    assert found["links"] > 90 and found["filtered"] == ["get plan", "get"]
    assert found["path"].endswith("/api/project/{project_name}/runs/get")
