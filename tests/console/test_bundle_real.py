"""What is shipped of the console: how much it is, that it is the same everywhere, and that sources alone work, too."""

from __future__ import annotations

import gzip
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from chalicelib.console import FOLDER, bundle
from infra.packaging import bundle_console
from tests.harness import installed

ROOT = Path(__file__).parents[2]
ESBUILD = ROOT / bundle.TOOLS / "node_modules" / ".bin" / "esbuild"
FIRST_LOAD, ALL, IN_WHEEL = 60_000, 120_000, 150_000  # bytes: compressed, compressed, and of the wheel
FILES = 4  # of the first load

pytestmark = pytest.mark.slow


def silent(_: str) -> None:
    raise AssertionError("there is nothing to say about a bundle")


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    if not ESBUILD.exists():
        pytest.skip("the console's packages aren't installed here; `make test` installs them into .venvs")
    return bundle.shipped(FOLDER, ROOT, silent)


def plain(files: dict[str, bytes], name: str) -> str:
    return gzip.decompress(files[f"dist/{name}.gz"]).decode()


def loaded_first(files: dict[str, bytes]) -> set[str]:
    """The page, and whatever it loads before anybody has done anything, by their names."""
    found, waiting = set[str](), ["index.html"]
    while waiting:
        name = waiting.pop()
        found.add(name)
        text = plain(files, name)
        imported = re.findall(r'(?:from|^import|;import)\s*"\./([^"]+)"', text) if name.endswith(".js") else []
        waiting += {*re.findall(r'"console/([^"]+)"', text), *imported} - found
    return found


def test_it_is_small(files: dict[str, bytes]) -> None:
    sizes = {name.removesuffix(".gz").removeprefix("dist/"): len(text) for name, text in files.items() if ".gz" in name}
    first = loaded_first(files)
    assert len(first) <= FILES and sum(sizes[name] for name in first) <= FIRST_LOAD, sizes
    assert sum(sizes.values()) <= ALL, sizes


def test_only_compressed_files_and_the_licences_are_shipped(files: dict[str, bytes]) -> None:
    others = {name for name in files if not re.fullmatch(r"dist/[\w.-]+\.(?:html|js|css)\.gz", name)}
    assert others == {"__init__.py", "dist/licences.txt"}
    for owner in ("Jason Miller", "Leon Sorokin"):
        assert owner in files["dist/licences.txt"].decode()
    page = plain(files, "index.html").replace("http://www.w3.org", "")
    assert "importmap" not in page and page.count("<script>") == 1 and not re.search(r"style=|http:|https:", page)


def test_the_same_sources_make_the_same_bytes_in_the_wheel_and_in_aws(files: dict[str, bytes], tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(FOLDER, copy)
    bundle_console(copy)
    assert {path.relative_to(copy).as_posix(): path.read_bytes() for path in copy.rglob("*") if path.is_file()} == files
    with zipfile.ZipFile(installed.wheel()) as wheel:
        prefix = "dstack_serverless/plane/console/"
        entries = [entry for entry in wheel.infolist() if entry.filename.startswith(prefix)]
        assert {entry.filename.removeprefix(prefix): wheel.read(entry) for entry in entries} == files
    assert sum(entry.compress_size for entry in entries) <= IN_WHEEL


def test_without_the_bundler_the_sources_are_shipped_and_it_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    found = bundle.shipped(FOLDER, tmp_path, said.append)
    assert len(said) == 1 and "not bundled" in said[0]
    assert {"__init__.py", "index.html", "app/main.js", "vendor/preact/LICENSE"} <= set(found)
    assert not any(name.startswith("dist/") or name.endswith((".json", ".ts")) for name in found)


def test_broken_sources_are_refused(tmp_path: Path) -> None:
    if not ESBUILD.exists():
        pytest.skip("the console's packages aren't installed here; `make test` installs them into .venvs")
    copy = tmp_path / "console"
    shutil.copytree(FOLDER, copy)
    (copy / "app" / "main.js").write_text('import { none } from "./nowhere.js";')
    with pytest.raises(bundle.Unbundled, match="nowhere"):
        bundle.shipped(copy, ROOT, silent)
