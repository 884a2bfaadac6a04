"""The one uploaded file of a multipart body: clients send a part called `file`, named by the hash of its content."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chalicelib.errors import Invalid

_BOUNDARY = re.compile(r'multipart/form-data\s*;.*?boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*(\w+)="([^"\r\n]*)"')
_MAX_HEAD = 4_096


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
    for part in body[len(boundary) : end].split(b"\r\n" + boundary + b"\r\n"):
        head, blank, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if blank and len(head) <= _MAX_HEAD:
            given = _disposition(head)
            if given.get("name") == "file":
                return UploadedFile(given.get("filename", ""), content)
    raise Invalid("The multipart body has no part called `file`.")


def _disposition(head: bytes) -> dict[str, str]:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-disposition":
            return {key.lower(): text for key, text in _PARAMETER.findall(value)}
    return {}
