"""`--json`: every command's document is as recorded, and changes with its version only.

Where a key that was there has gone or says something else, GOLDEN=write records nothing until the version of the shape
is raised in `cli/screen/shapes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.usage import Part, StorageUsage
from cli.screen.shapes import COMMANDS, SHAPES
from docs import json_shapes
from tests.api.rig import OFFERS, Rig
from tests.cli.conftest import Dstack
from tests.cli.outline import breaks, outline
from tests.cli.shapes import RECORDED, RealPlane, observed, recorded
from tests.cli.test_help import LEAVES
from tests.harness import golden
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


def test_every_document_is_as_recorded(bare: Dstack, plane: RealPlane) -> None:
    seen = {name: {"version": SHAPES[name].version, "keys": keys} for name, keys in observed(bare, plane).items()}
    before = recorded()
    broken = {
        name: gone
        for name, shape in before.items()
        if name in seen
        and shape["version"] == seen[name]["version"]
        and (gone := breaks(shape["keys"], seen[name]["keys"]))
    }
    assert not broken, "raise the version of these in cli/screen/shapes.py"
    golden.check(RECORDED, json.dumps(seen, indent=1) + "\n")  # and then `make docs`


def test_every_command_with_json_has_a_shape() -> None:
    printing = {" ".join(path) for path, command in LEAVES.items() if any("--json" in p.opts for p in command.params)}
    assert printing == {name.partition(" --")[0] for name in COMMANDS}


def test_documents_of_our_own_begin_with_their_version() -> None:
    for name, shape in recorded().items():
        keys = list(shape["keys"])
        assert (keys[0] == "shape") is SHAPES[name].versioned, name
        assert SHAPES[name].versioned or "shape" not in keys


def test_the_page_is_up_to_date() -> None:
    assert json_shapes.PAGE.read_text(encoding="utf-8") == json_shapes.page(), "make docs"


@pytest.mark.parametrize(
    ("after", "broken"),
    [
        ({"a": "string", "b": "null", "c": "number"}, []),
        ({"a": "string", "b": "string | null", "d": "list", "c": "number | null"}, []),
        ({"a": "string", "b": "null"}, ["c"]),
        ({"a": "number", "b": "null", "c": "number"}, ["a"]),
        ({"a": "number | string", "b": "null", "c": "number"}, ["a"]),
    ],
)
def test_what_breaks_a_script(after: dict[str, str], broken: list[str]) -> None:
    assert breaks({"a": "string", "b": "null", "c": "number"}, after) == broken


def test_an_outline_is_every_key_with_its_kinds() -> None:
    collected: dict[str, list[object]] = {}
    found = outline(
        [{"a": [{"b": 1}, {"b": None, "run": {"x": 1}}]}, {"env": {"X": "1"}}], {"a[].run": "Run"}, collected
    )
    assert found == {"a": "list", "a[]": "object", "a[].b": "number | null", "a[].run": "Run", "env": "object"}
    assert collected == {"Run": [{"x": 1}]}
