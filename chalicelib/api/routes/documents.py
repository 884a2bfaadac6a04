"""What the API says of itself: an OpenAPI document, a page that shows it, and the schema of configurations."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

import orjson

from chalicelib.api import etags
from chalicelib.api.route import Answer, Call

_FOLDER = Path(__file__).parents[1]
SCHEMA = "application/schema+json"
OPENAPI, HTML = "application/vnd.oai.openapi+json;version=3.1", "text/html; charset=utf-8"


@dataclass(frozen=True)
class _Document:
    content: bytes
    media: str
    headers: dict[str, str] = field(default_factory=dict)

    def to(self, call: Call) -> Answer:
        """The document, or nothing where the caller has it already."""
        headers = {**self.headers, "ETag": etags.of(self.content)}
        headers["Cache-Control"] = "no-cache"
        if etags.has(call.headers.get("if-none-match", ""), headers["ETag"]):
            return Answer(b"", status=304, content_type=self.media, headers=headers)
        return Answer(self.content, content_type=self.media, headers=headers)


def openapi(call: Call) -> Annotated[Answer, OPENAPI]:
    """This document. With the `ETag` of one that you have as `If-None-Match`, the answer is 304 if it is the same."""
    return _openapi().to(call)


def page(call: Call) -> Annotated[Answer, HTML]:
    """This document, to read in a browser."""
    return _page().to(call)


def schema(call: Call) -> Annotated[Answer, SCHEMA]:
    """The JSON Schema of `*.dstack.yml`, for editors: the one that `dstack init --schema` writes."""
    return _schema().to(call)


@cache
def _openapi() -> _Document:
    packed = _FOLDER / "openapi.json.gz"  # in an installed package
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else (_FOLDER / "openapi.json").read_bytes()
    return _Document(content, OPENAPI)


@cache
def _page() -> _Document:
    """The browser runs only the script and the style that are in the page, and loads nothing from elsewhere."""
    content = (_FOLDER / "docs.html").read_bytes()
    policy = {
        "default-src": "'none'",
        "script-src": _hash_of(content, b"script"),
        "style-src": _hash_of(content, b"style"),
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return _Document(content, HTML, headers)


def _hash_of(content: bytes, tag: bytes) -> str:
    found = re.search(b"<%b>(.*?)</%b>" % (tag, tag), content, re.DOTALL)
    assert found is not None, "the page has one of each"
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1]).digest()).decode()}'"


@cache
def _schema() -> _Document:
    from chalicelib.configuration.schema import configuration_schema  # which loads every model

    return _Document(orjson.dumps(configuration_schema()), SCHEMA)
