"""What is shipped of the console: one page, two scripts and one style, compressed as browsers get them.

The wheel and the API's artefact in AWS have the same bytes. esbuild, which bundles, is one of the packages that
`make .venvs/console_build/.installed` installs; a source distribution has what it made. Without it the sources are
shipped, which run as well, in more files.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

TOOLS = ".venvs/console_build"  # in a checkout
SOURCES = ("app", "data", "kit", "lib", "pages", "styles", "vendor")
_VENDORED = {  # what the map of imports in `index.html` says, for esbuild
    "preact": "./vendor/preact/preact.mjs",
    "preact/hooks": "./vendor/preact/hooks.mjs",
    "htm": "./vendor/htm/htm.mjs",
    "uplot": "./vendor/uplot/uPlot.esm.js",
}
_OPTIONS = (
    *("--bundle", "--minify", "--splitting", "--format=esm", "--target=es2022", "--charset=utf8", "--outbase=."),
    *("--legal-comments=none", "--entry-names=[name]-[hash]", "--chunk-names=[name]-[hash]", "--log-level=warning"),
    *(f"--alias:{name}={file}" for name, file in _VENDORED.items()),
)
_INDENTED = re.compile(rb"(?<=[>}])\n\s+(?=[<$])")  # in a template, where it says nothing
_IMPORTS = re.compile(r'<script type="importmap">.*?</script>\n', re.DOTALL)


class Unbundled(RuntimeError):
    """The bundler refused the sources, or `index.html` doesn't name them as it should."""


def shipped(folder: Path, root: Path, say: Callable[[str], None]) -> dict[str, bytes]:
    """The files of the package `console`, which is in `folder`, by their paths in it. `root`: the checkout."""
    ours = {"__init__.py": (folder / "__init__.py").read_bytes()}
    esbuild = root / TOOLS / "node_modules" / ".bin" / "esbuild"
    if esbuild.exists():
        return ours | {f"dist/{name}": content for name, content in bundled(folder, esbuild).items()}
    made = [path for path in sorted((folder / "dist").rglob("*")) if path.is_file()]
    if made:  # in a source distribution
        return ours | {path.relative_to(folder).as_posix(): path.read_bytes() for path in made}
    say(f"The console is shipped as its sources, not bundled: `make {TOOLS}/.installed` installs the bundler.")
    files = [path for name in SOURCES for path in sorted((folder / name).rglob("*")) if path.is_file()]
    return ours | {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / "index.html", *files)}


def bundled(folder: Path, esbuild: Path) -> dict[str, bytes]:
    """The bundle's files by their names. The same sources make the same bytes wherever they are."""
    with tempfile.TemporaryDirectory() as out:
        command = [str(esbuild), "app/main.js", "styles/index.css", *_OPTIONS, f"--outdir={out}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            raise Unbundled(done.stderr)
        made = {path.name: _INDENTED.sub(b"", path.read_bytes()) for path in sorted(Path(out).iterdir())}
    made["index.html"] = _page((folder / "index.html").read_text(encoding="utf-8"), list(made)).encode()
    zipped = {f"{name}.gz": _zipped(text) for name, text in made.items()}
    return {**zipped, "licences.txt": "\n\n".join(_licences(folder)).encode()}


def _zipped(text: bytes) -> bytes:
    """Compressed by zopfli, which is slow and makes a thirtieth less, where it is installed: it is for developers."""
    try:
        from zopfli import gzip as zopfli
    except ImportError:
        return gzip.compress(text, mtime=0)
    return bytes(zopfli.compress(text))


def _page(page: str, names: list[str]) -> str:
    """`index.html` with the names of the bundle instead of those of the sources."""
    for source, made in (("app/main.js", r"main-\w+\.js"), ("styles/index.css", r"index-\w+\.css")):
        (name,) = [name for name in names if re.fullmatch(made, name)]
        if f'"console/{source}"' not in page:
            raise Unbundled(f"index.html doesn't load console/{source}")
        page = page.replace(f'"console/{source}"', f'"console/{name}"')
    return _IMPORTS.sub("", page)


def _licences(folder: Path) -> Iterator[str]:
    for path in sorted((folder / "vendor").glob("*/LICENSE")):
        yield f"{path.parent.name}\n\n{path.read_text(encoding='utf-8').strip()}\n"
