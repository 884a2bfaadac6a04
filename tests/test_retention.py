"""Whatever is stored has a line on the page that says how long it is kept and what erases it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import get_type_hints

import pytest

import chalicelib
from chalicelib.agent.kernel import tasks
from chalicelib.catalog import offers
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain import keys, programs
from chalicelib.domain.keys import Key
from chalicelib.domain.noun import Noun
from chalicelib.engine import stray_blobs
from chalicelib.runtime import local_host
from chalicelib.runtime.data_folder import locked
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.settings import ServerSettings
from chalicelib.usecases.operator.first_start import first_start
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create
from tests.engine.test_erase_unused import archive, closed, turn
from tests.harness.rows import each
from tests.world import nouns as b
from tests.world.plane import World
from tests.world.time import Clock

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "retention.md").read_text(encoding="utf-8").partition("## All that is stored")[2]
ROWS = [line.strip("| ").split(" | ") for line in PAGE.split("\n") if line.startswith("| `")]
LISTED = frozenset(name for row in ROWS for name in re.findall(r"`([^`]+)`", row[0]))


def family(key: Key) -> str:
    """A key with everything that tells one record from another left out."""
    text = re.sub(r"\*[\d*]*|\d+", "*", f"{key.pk} {key.sk}")
    return re.sub(r"\*([/#]\*)+", "*", text)


def declared() -> Iterator[str]:
    """Every family of keys in `domain/keys.py`."""
    for value in vars(keys).values():
        if isinstance(value, Key):
            yield family(value)
        elif inspect.isfunction(value) and get_type_hints(value).get("return") is Key:
            kinds = [get_type_hints(value)[name] for name in inspect.signature(value).parameters]
            yield family(value(*("*" if kind is str else 0 for kind in kinds)))


FAMILIES = sorted(set(declared()))


@each("name", FAMILIES)
def test_every_family_of_keys_has_its_line(name: str) -> None:
    assert name in LISTED, f"say in docs/reference/retention.md how long `{name}` is kept, and what erases it"


@pytest.mark.slow
def test_no_key_is_made_elsewhere() -> None:
    """So none can be without its line. What reads a key back, or makes one from a listed one, names no family."""
    made = re.compile(r"\bKey\((?!\*|row|pk, sk)")
    found = {path.name for path in (ROOT / "chalicelib").rglob("*.py") if made.search(path.read_text(encoding="utf-8"))}
    assert found == {"keys.py"}


def nouns() -> list[type[Noun]]:
    for module in walk_packages(chalicelib.__path__, "chalicelib."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    found, waiting = [], [Noun]
    while waiting:
        kinds = waiting.pop().__subclasses__()
        found += [kind for kind in kinds if kind.__module__.startswith("chalicelib.")]
        waiting += kinds
    return found


@each("kind", sorted(nouns(), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_every_noun_stands_in_the_table_of_keys(kind: type[Noun]) -> None:
    assert re.search(rf"^\| {kind.__name__} ", keys.__doc__ or "", re.MULTILINE)


def test_what_a_control_plane_stores_is_listed(tmp_path: Path) -> None:
    """The same from the other end: no record of a busy one is of another family."""
    rig = Rig.at(tmp_path)
    made = create(rig, fleet())
    rig.save(b.presence_of(add_instance(rig, made)))
    submit(rig, task())
    archive(rig)
    closed(rig)
    turn(rig)
    found = [record.key for record in rig.world.plane.store.scan(limit=10_000)]
    ids = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{64}")
    seen = {family(Key(ids.sub("*", key.pk), ids.sub("*", key.sk))) for key in found}
    seen = {re.sub(r"(name|secret|repo)/.+", r"\1/*", name) for name in seen}
    assert len(seen) > 15 and seen - {"events/ *"} <= set(FAMILIES)
    rig.world.plane.store.close()


@each("row", ROWS, ids=lambda row: row[0][:40])
def test_every_line_says_how_long_and_by_what(row: list[str]) -> None:
    what, kept, by = row
    assert what and kept
    files = re.findall(r"`([^`]+\.py)`", by)
    assert files or by == "nothing"
    assert by != "nothing" or kept.startswith("one "), "what stays for ever must not grow"
    assert all((ROOT / "chalicelib" / file).is_file() for file in files)


def test_no_line_is_about_what_is_not_there() -> None:
    families = {name for name in LISTED if " " in name}
    assert families == set(FAMILIES)


def test_every_folder_of_blobs_is_listed() -> None:
    assert {*stray_blobs.FOLDERS, programs.FOLDER, f"{offers.FOLDER}/", "logs/"} <= LISTED
    stored = {
        name
        for path in (ROOT / "chalicelib").rglob("*.py")
        for name in re.findall(r'blobs?\.put\(f?"(\w+/)', path.read_text(encoding="utf-8"))
    }
    assert stored <= LISTED


def test_all_that_a_server_keeps_in_its_folder_is_listed(tmp_path: Path) -> None:
    locked(tmp_path).close()
    settings = ServerSettings(data_dir=tmp_path, fake_cloud=True)
    root = EmbeddedRoot(settings, ServerConfig(projects=()), "http://plane", clock=Clock())
    _, project = first_start(root.plane, ADMIN)
    rig = Rig(World(root.plane, Clock(), tmp_path), project)
    archive(rig)
    root.plane.logs.append(project.id, "job", 0, [(1, b"a line")])
    root.refresh_accounts()
    names = {path.name for path in tmp_path.iterdir()}
    folders = {f"{path.name}/" for path in (tmp_path / "blobs").iterdir()}
    root.close()
    assert {"plane.db", "blobs", "logs"} <= names <= LISTED
    assert {"agent/", "archives/", "catalog/"} <= folders <= LISTED


def test_all_that_an_agent_keeps_in_its_folder_is_listed() -> None:
    folder = Path(tasks.__file__).parents[1]
    sources = [path.read_text(encoding="utf-8") for path in (*folder.rglob("*.py"), Path(local_host.__file__))]
    names = {
        name
        for text in sources
        for name in re.findall(r'(?:join\((?:self\.)?_?data, |keep\(data, |folder / )"([\w.-]+)"', text)
    }
    assert {"tasks", "trash", "credential", "agent.log", "bootstrap.token"} <= names <= LISTED
