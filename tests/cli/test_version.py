"""`dstack --version`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import written_version
from tests.cli.conftest import Dstack


def test_the_version_is_that_of_the_project_installed_or_not(bare: Dstack) -> None:
    assert bare("--version").out == f"{written_version()} (compatible with dstack 0.22.5)\n"


def test_the_version_tells_of_another_package_with_the_same_command(
    bare: Dstack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "dstack-0.22.5.dist-info"
    beside.mkdir()
    (beside / "METADATA").write_text("Metadata-Version: 2.1\nName: dstack\nVersion: 0.22.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert bare("--version").out.splitlines()[1] == (
        "dstack 0.22.5 is installed beside it. "
        "`dstack` is the one installed last; `dstack-serverless` is always this one."
    )
