"""Sending what isn't JSON: multipart uploads, queries, an agent's calls."""

from __future__ import annotations

import hashlib
import io
import tarfile
from typing import Any

from chalicelib.api import dispatch
from tests.api.rig import ADMIN, Response, Rig

BOUNDARY = "a0bd2f4b1c8edf26"


def tar(*entries: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        archive.addfile(member)
    return out.getvalue()


def multipart(content: bytes, name: str | None = None, part: str = "file") -> bytes:
    name = hashlib.sha256(content).hexdigest() if name is None else name
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{part}"; filename="{name}"\r\n\r\n'
    return head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def send(
    rig: Rig,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    token: str = ADMIN,
    query: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> Response:
    path = path.replace("P/", f"/api/project/{rig.project.name}/", 1)
    headers = {"authorization": f"Bearer {token}", "content-type": content_type}
    found = dispatch.answer(rig.world.plane, dispatch.Request(method, path, query or {}, headers, body))
    return Response(found.status, found.body)


def upload(rig: Rig, path: str, body: bytes, **more: Any) -> Response:
    return send(rig, "POST", path, body, content_type=f"multipart/form-data; boundary={BOUNDARY}", **more)


def message(reply: Response) -> str:
    """What a person reads of a refusal."""
    assert reply.status == 400, (reply.status, reply.body)
    (entry,) = reply.json["detail"]
    return str(entry["msg"])
