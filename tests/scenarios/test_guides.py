"""What the guides show is what a reader who types it sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness import golden, images
from tests.harness.server import ROOT
from tests.scenarios.guides import PAGES, SHELL, Shown, compare, play_page, same, server_of, virtual


@pytest.mark.parametrize("path", [path for path in PAGES if path.stem not in SHELL], ids=lambda path: path.stem)
@pytest.mark.slow
def test_a_guide_shows_what_happens(path: Path, tmp_path: Path) -> None:
    with virtual(path, tmp_path) as stage:
        compare(path, stage, renew=golden.WRITING)


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


def test_no_page_asks_for_an_image_that_only_tests_have() -> None:
    own = {name.partition("/")[0] for name in vars(images).values() if isinstance(name, str) and name.endswith(":1")}
    assert own == {"test"}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yml")]
    assert not [page for page in pages if re.search(r"\btest/\w+:", page.read_text())]


def test_a_page_that_starts_no_server_first_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ dstack ps\n```\n\n```shell\ndstack server\n```\n")
    with pytest.raises(AssertionError, match="starts no server before its first command"):
        server_of(page)


def test_a_pipe_takes_standard_output_only(tmp_path: Path) -> None:
    class PrintingStage:
        home, environment = tmp_path, {}

        def dstack(self, args: list[str]) -> tuple[str, int]:
            return "progress\none\ntwo\n", 0

        def streams(self, args: list[str]) -> tuple[str, str]:
            return "one\ntwo\n", "progress\n"

    page = tmp_path / "page.md"
    page.write_text("```console\n$ dstack x | tail -1\n$ dstack x 2>&1 | tail -1\n$ dstack x\n```\n")
    _, shown = play_page(page, PrintingStage())  # type: ignore[arg-type]
    assert [each.now for each in shown] == ["progress\ntwo\n", "two\n", "progress\none\ntwo\n"]
