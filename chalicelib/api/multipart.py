"""The one uploaded file of a multipart body: clients send a part called `file`, named by the hash of its content."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chalicelib.errors import Invalid

_BOUNDARY = re.compile(r'multipart/form-data\s*;.*?boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*(\w+)="([^"\r\n]*)"')
_MAX_HEAD = 4_096
_MAX_PARTS = 32


@dataclass(frozen=True)
class UploadedFile:
    name: str  # the part's file name
    content: bytes


def uploaded_file(content_type: str, body: bytes) -> UploadedFile:
    """The part called `file`. Raises Invalid."""
    found = _BOUNDARY.match(content_type)
    if found is None:
        raise Invalid(
            "An upload is a multipart/form-data body with a boundary.", hint="Send the archive as a part called `file`."
        )
    boundary = b"--" + (found[1] or found[2]).encode()
    if not body.startswith(boundary):
        raise Invalid("The multipart body doesn't begin with its boundary.")
    end = body.rfind(b"\r\n" + boundary + b"--")
    if end < 0:
        raise Invalid("The multipart body is truncated: its final boundary is missing.")
    line, at = b"\r\n" + boundary + b"\r\n", len(boundary) + 2
    for _ in range(_MAX_PARTS):
        stop = body.find(line, at - 2, end)
        stop = end if stop < 0 else stop
        blank = body.find(b"\r\n\r\n", at, min(stop, at + _MAX_HEAD + 4))
        given = _disposition(body[at:blank]) if blank >= 0 else {}
        if given.get("name") == "file":
            return UploadedFile(given.get("filename", ""), body[blank + 4 : stop])
        if stop == end:
            raise Invalid("The multipart body has no part called `file`.")
        at = stop + len(line)
    raise Invalid(
        f"The multipart body has no part called `file` among its first {_MAX_PARTS}.", hint="Send the archive first."
    )


def _disposition(head: bytes) -> dict[str, str]:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            return {key.lower(): text for key, text in _PARAMETER.findall(value)}
    return {}
