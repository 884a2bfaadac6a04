"""What the guides show is what a reader who types it sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.guides import PAGES, REAL, Shown, check, same


@pytest.mark.parametrize("path", [path for path in PAGES if path.stem not in REAL], ids=lambda path: path.stem)
def test_a_guide_shows_what_happens(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)


def test_only_a_stage_that_went_by_unseen_is_no_difference(tmp_path: Path) -> None:
    written = "Run hello is submitted.\nprovisioning on dstack (sim-north)\nHello\n"
    assert same(
        Shown("apply", written, f"Run hello is submitted.\nsubmitted\n{written.split(chr(10), 1)[1]}"), tmp_path
    )
    assert same(Shown("apply", written, "Run hello is submitted.\nHello\n"), tmp_path)
    late = "terminating on dstack (sim-north): it has ended"
    assert same(Shown("apply", written, f"Run hello is submitted.\n{late}\nHello\n"), tmp_path)
    assert not same(Shown("apply", written, "provisioning on dstack (sim-north)\nHello\n"), tmp_path)
    assert not same(Shown("apply", written, written.replace("Hello", "Bye")), tmp_path)
