"""What docs/operate/standby.md says of a second server on one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.errors import Refused
from chalicelib.runtime.data_folder import locked
from tests.harness.server import ROOT

PAGE = (ROOT / "docs" / "operate" / "standby.md").read_text(encoding="utf-8")


def test_a_second_server_on_a_folder_is_refused_as_the_page_says(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(Refused) as refused:
        locked(tmp_path)
    assert f"dstack server: {refused.value.message.replace(str(tmp_path), '…')}\n" in PAGE
    locked(tmp_path).close()
