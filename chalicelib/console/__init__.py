"""The files of the web console, and what a browser must be told about each.

A checkout has the sources, which run as they are. A wheel and the API's artefact have what `bundle.py` makes of them: a
page, a script and a style whose names change with what is in them, so that browsers keep them for good.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
BUNDLED = FOLDER / "dist"
INDEX = "index.html"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
_SOURCES = ("app", "data", "kit", "lib", "pages", "styles", "vendor")
_HASHED = re.compile(r"-[A-Z0-9]{8}\.(?:js|css)")  # as esbuild names what it writes
_FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class File:
    content: bytes
    media: str
    zipped: bytes | None = None  # the same, compressed by gzip
    headers: dict[str, str] = field(default_factory=dict)


def file(name: str) -> File | None:
    """The file that is served at `/console/{name}`; None if there is none."""
    return _bundled(name) if BUNDLED.is_dir() else _read(FOLDER, name)  # sources may change at any time


@cache
def _bundled(name: str) -> File | None:
    return _read(BUNDLED, name)


def _read(folder: Path, name: str) -> File | None:
    path = folder / name
    known = folder == BUNDLED or name.partition("/")[0] in _SOURCES
    if not known or ".." in path.parts or path.suffix not in MEDIA or not path.is_file():
        return None
    zipped = path.with_name(f"{path.name}.gz")
    caching = _FOR_GOOD if folder == BUNDLED and _HASHED.search(name) else "no-cache"
    return File(
        path.read_bytes(),
        MEDIA[path.suffix],
        zipped.read_bytes() if zipped.is_file() else None,
        {"Cache-Control": caching, "X-Content-Type-Options": "nosniff"},
    )


def index() -> File:
    """The page."""
    return _bundled_index() if BUNDLED.is_dir() else _index(FOLDER)


@cache
def _bundled_index() -> File:
    return _index(BUNDLED)


def _index(folder: Path) -> File:
    """The page runs the console's own scripts alone, and no text becomes markup there, wherever it comes from."""
    content = (folder / INDEX).read_bytes()
    zipped = folder / f"{INDEX}.gz"
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(("'self'", *_inline(content))),
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return File(content, MEDIA[".html"], zipped.read_bytes() if zipped.is_file() else None, headers)


def _inline(content: bytes) -> list[str]:
    """The hash of the map of imports, which only the sources need: a policy has no other way to name it."""
    maps = re.findall(rb'<script type="importmap">(.*?)</script>', content, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in maps]
