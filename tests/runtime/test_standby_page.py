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


def test_a_folder_that_cant_be_made_private_is_refused_with_what_helps() -> None:
    """As the folder of a volume in Kubernetes, which is root's: here one whose mode nobody may change."""
    with pytest.raises(Refused) as refused:
        locked(Path("/proc/self"))
    assert refused.value.message == "Can't use the data folder /proc/self: Operation not permitted."
    assert "name a folder in it that the server makes: --data-dir /proc/self/server" in (refused.value.hint or "")
