"""Archives of files over HTTP: each user sees only their own."""

from __future__ import annotations

from typing import Any

from chalicelib.api.multipart import uploaded_file
from chalicelib.api.requests import RequestBody
from chalicelib.api.route import Call
from chalicelib.domain.tenants import Archive
from chalicelib.usecases.runs import files


class ByHashBody(RequestBody):
    hash: str


def get_archive_by_hash(call: Call) -> Any:
    return _archive_json(files.archive_by_hash(call.plane, call.actor, call.parse(ByHashBody).hash))


def upload_archive(call: Call) -> Any:
    upload = uploaded_file(call.headers.get("content-type", ""), call.body)
    return _archive_json(files.save_archive(call.plane, call.actor, upload.name, upload.content))


def _archive_json(archive: Archive) -> dict[str, str]:
    return {"id": archive.id, "hash": archive.hash}
