"""The genuine client's commands about exports and imports, against our API over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.connection.config import ProjectEntry, config_path, save_projects
from tests.api.rig import ADMIN, Rig
from tests.api.test_exports import GPUS, Center
from tests.cli.printed import RealPlane
from tests.wire.clients import PEER, shared

Run = Callable[[str], str]


@pytest.fixture
def genuine(tmp_path: Path) -> Iterator[Run]:
    if not (PEER / "dstack").exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    plane = RealPlane()
    plane.rig = Center(Rig.at(tmp_path)).rig
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    driver, output = shared("peer"), tmp_path / "output"

    def run(line: str) -> str:
        driver.run({"argv": line.split(), "cwd": str(tmp_path), "env": env, "output": str(output), "input": None})
        return output.read_text(encoding="utf-8")

    with plane.on_http():
        entries = [ProjectEntry(name, plane.url, ADMIN, name == "lab") for name in ("lab", "main")]
        save_projects(config_path(tmp_path), entries)
        yield run
    plane.rig.world.store.close()


def row(text: str, *cells: str) -> bool:
    return any(line.split() == list(cells) for line in text.splitlines())


def test_hosts_are_shared_seen_and_taken_back(genuine: Run) -> None:
    genuine("export create hosts --fleet gpus --importer main")
    assert row(genuine("export list"), "hosts", "gpus", "-", "main")
    assert row(genuine("import --project main list"), "lab/hosts", "gpus", "-")
    shown = genuine("fleet --project main list")
    assert GPUS in shown
    genuine("export update hosts --set-global --remove-importer main")
    assert row(genuine("export list"), "hosts", "gpus", "-", "*")
    genuine("export update hosts --unset-global --add-importer main")
    genuine("import --project main delete lab/hosts -y")
    assert row(genuine("export list"), "hosts", "gpus", "-", "-")
    genuine("export delete hosts -y")
    assert "hosts" not in genuine("export list")
    assert "no fleet 'nothing'" in genuine("export create more --fleet nothing")
