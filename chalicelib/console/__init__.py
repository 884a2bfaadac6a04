"""The files of the web console, and what a browser must be told about each.

A checkout has the sources, which run as they are. A wheel and the API's artefact have what `bundle.py` makes of them: a
page, two scripts and a style whose names change with what is in them, so that browsers keep them for good.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from dataclasses import dataclass, field, replace
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
_SAFE = {"X-Content-Type-Options": "nosniff"}
_FOR_GOOD = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class File:
    content: bytes
    zipped: bytes | None  # the same, compressed by gzip
    media: str
    headers: dict[str, str] = field(default_factory=dict)


def file(name: str, bundled: Path) -> File | None:
    """The file that is served at `/console/{name}`; None if there is none."""
    return _bundle(bundled).get(name) if bundled.is_dir() else _source(name)  # sources may change at any time


@cache
def _bundle(folder: Path) -> dict[str, File]:
    found = {}
    for path in folder.glob("*.gz"):
        name, zipped = path.stem, path.read_bytes()
        caching = _FOR_GOOD if _HASHED.search(name) else "no-cache"
        found[name] = File(gzip.decompress(zipped), zipped, _media(name), {"Cache-Control": caching, **_SAFE})
    return found


def _source(name: str) -> File | None:
    path = Path(name)
    if path.suffix not in MEDIA or ".." in path.parts or path.parts[0] not in _SOURCES:
        return None
    here = FOLDER / path
    return (
        File(here.read_bytes(), None, _media(name), {"Cache-Control": "no-cache", **_SAFE}) if here.is_file() else None
    )


def _media(name: str) -> str:
    return MEDIA[Path(name).suffix]


def index(bundled: Path) -> File:
    """The page."""
    if bundled.is_dir():
        return _index(_bundle(bundled)[INDEX])
    return _index(File((FOLDER / INDEX).read_bytes(), None, _media(INDEX)))


def _index(file: File) -> File:
    """It runs the console's own scripts alone, and no text becomes markup there, wherever it comes from."""
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(("'self'", *_inline(file.content))),
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
        **_SAFE,
    }
    return replace(file, headers=headers)


def _inline(content: bytes) -> list[str]:
    """The hashes of what the page has of scripts in itself, as a policy names them. One makes its address end with a
    slash, as at the stage of an API in AWS it may not: the others are below it. The map of imports is the sources'."""
    scripts = re.findall(rb'<script(?: type="importmap")?>(.*?)</script>', content, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in scripts]
