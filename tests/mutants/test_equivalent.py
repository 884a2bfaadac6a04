"""The list of changes that make no difference names changes that can be made."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.__main__ import ROOT
from tests.mutants.changes import changes
from tests.mutants.equivalent import Known, known


def test_every_equivalent_change_is_one_that_can_be_made() -> None:
    """An entry whose text was rewritten, or whose file is gone, says nothing any more."""
    entries = known(ROOT)
    found = {name: changes(ROOT, name) for name in {entry.file for entry in entries}}
    assert [entry for entry in entries if not any(map(entry.names, found[entry.file]))] == []
    assert all(entry.why for entry in entries)
    assert len(entries) == len(set(entries))


def test_an_entry_outlives_a_reworded_comment(tmp_path: Path) -> None:
    entry = Known("file.py", "", "x = 60", "x = 120", "why")
    for comment in ("", "  # a word", "  # another"):
        (tmp_path / "file.py").write_text(f"x = 60{comment}\n")
        assert [change for change in changes(tmp_path, "file.py") if entry.names(change)]
    (tmp_path / "file.py").write_text("x = 61\n")
    assert not any(map(entry.names, changes(tmp_path, "file.py")))
