"""`--json`: every command prints what its type says, and the page of these types is up to date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from chalicelib import contract
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.usage import Part, StorageUsage
from docs import json_page
from docs.openapi.declared import close_types
from tests.api.rig import OFFERS, Rig
from tests.cli.conftest import Dstack
from tests.cli.printed import RealPlane, printed
from tests.cli.test_help import LEAVES
from tests.world.ports import Books, accounts

BACKENDS = accounts(BackendFacts(name="vultr"), BackendFacts(name="aws", volumes=True, gateways=True))
USAGE = StorageUsage((Part("database", 4096, 1),), 10**9)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RealPlane]:
    found = RealPlane()
    (tmp_path / "api").mkdir()
    found.rig = Rig.at(
        tmp_path / "api",
        catalog=Books(OFFERS, error="its last refresh failed"),
        measure=lambda: USAGE,
        backends=BACKENDS,
    )
    yield found
    found.rig.world.plane.store.close()


@pytest.mark.slow
def test_every_document_is_of_its_type(bare: Dstack, plane: RealPlane) -> None:
    close_types()
    types = {**contract.PRINTED, "error": contract.ErrorDocument}
    found = printed(bare, plane)
    assert found.keys() == types.keys()
    for name, documents in found.items():
        for document in documents:
            TypeAdapter(types[name]).validate_python(document)


def test_every_command_with_json_has_a_type() -> None:
    printing = {" ".join(path) for path, command in LEAVES.items() if any("--json" in p.opts for p in command.params)}
    assert printing == {name.partition(" --")[0] for name in contract.PRINTED}


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    assert json_page.PAGE.read_text(encoding="utf-8") == json_page.page(), "make docs"


BEFORE = """\
### dstack ps --json

Version 1. Runs.

| key | value | |
|---|---|---|
| `a` | string | |
| `b` | `x`, null | |
| `c` | number | |
"""


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        ("", "", []),
        ("| `c` | number | |", "| `c` | number, null | more |\n| `d` | list of string | |", []),
        ("`x`, null", "`x`, `y`, null", []),
        ("| `c` | number | |\n", "", ["c"]),
        ("| `a` | string | |", "| `a` | number | |", ["a"]),
        ("Version 1.", "Version 2.", []),
    ],
)
def test_what_breaks_a_script(old: str, new: str, broken: list[str]) -> None:
    found = json_page.broken(BEFORE, BEFORE.replace(old, new) if old else BEFORE)
    assert found == [f"### dstack ps --json Version 1 {key}" for key in broken]
    if old.startswith("Version"):
        gone = BEFORE.replace("| `c` | number | |\n", "").replace(old, new)
        assert json_page.broken(BEFORE, gone) == [], "another version may be anything"


@pytest.mark.slow
def test_a_noun_gets_another_version() -> None:
    before, after = json_page.page(), json_page.page({"Run": 2})
    assert "### Run\n\nVersion 2. " in after and after.count("Version 2. ") == 1
    row = next(line for line in before.partition("### Run\n")[2].splitlines() if line.startswith("| `id`"))
    start, noun, rest = after.partition("### Run\n")
    without = start + noun + rest.replace(row + "\n", "", 1)
    assert json_page.broken(before, without) == []
    assert json_page.broken(after, without) == ["### Run Version 2 id"]
