"""What the agent's own Python may not leave to a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.agent.kernel import interpreter


@pytest.mark.parametrize(
    ("given", "left"), [(b"PATH=/bin\0LC_CTYPE_=x\0", {}), (b"PATH=/bin\0LC_CTYPE=C.UTF-8\0", {"LC_CTYPE": "C.UTF-8"})]
)
def test_a_locale_that_python_chose_is_no_variable_of_the_image(
    tmp_path: Path, given: bytes, left: dict[str, str]
) -> None:
    (tmp_path / "environ").write_bytes(given)
    environment = {"LC_CTYPE": "C.UTF-8"}
    interpreter.hide_locale(environment, str(tmp_path / "environ"))
    assert environment == left


def test_without_the_variable_nothing_is_read(tmp_path: Path) -> None:
    environment = {"LANG": "C"}
    interpreter.hide_locale(environment, str(tmp_path / "none"))
    assert environment == {"LANG": "C"}
