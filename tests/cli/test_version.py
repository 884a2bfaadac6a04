"""`dstack --version`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import written_version
from tests.cli.conftest import Dstack


def test_the_version_is_that_of_the_project_installed_or_not(bare: Dstack) -> None:
    shown = bare("--version").out.replace("; a checkout that isn't installed", "")
    assert shown == f"{written_version()} (compatible with dstack 0.22.5)\n"


NOTE = (
    "dstack 0.22.5 is installed beside it. `dstack` is the one installed last; `dstack-serverless` is always this one."
)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package with a command of the same name."""
    described = tmp_path / "dstack-0.22.5.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: dstack\nVersion: 0.22.5\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("beside")
def test_the_version_tells_of_another_package_with_the_same_command(bare: Dstack) -> None:
    assert bare("--version").out.splitlines()[1] == NOTE


@pytest.mark.usefixtures("beside")
def test_a_server_tells_of_it_as_it_starts(bare: Dstack) -> None:
    assert NOTE in bare("server", "--fake-cloud-name", "aws").err, "it goes no further: that flag needs another"


def test_nothing_is_told_where_there_is_none(bare: Dstack) -> None:
    assert "beside" not in bare("server", "--fake-cloud-name", "aws").err
