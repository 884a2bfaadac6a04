"""Archives of files over HTTP: each user sees only their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.multipart import UploadedFile
from chalicelib.api.requests import NoQuery, RequestBody
from chalicelib.api.route import Call, takes, takes_file
from chalicelib.domain.tenants import Archive
from chalicelib.usecases.runs import files

if TYPE_CHECKING:
    from chalicelib import contract


class ByHashBody(RequestBody):
    hash: str


@takes(ByHashBody)
def get_archive_by_hash(call: Call, body: ByHashBody) -> contract.Archive:
    """The caller's archive with this hash, so that it needn't be uploaded again."""
    return _archive_json(files.archive_by_hash(call.plane, call.actor, body.hash))


@takes_file(NoQuery)
def upload_archive(call: Call, _: NoQuery, upload: UploadedFile) -> contract.Archive:
    """Uploads an archive, named by the SHA-256 of its content, for `files` of a run."""
    return _archive_json(files.save_archive(call.plane, call.actor, upload.name, upload.content))


def _archive_json(archive: Archive) -> contract.Archive:
    return {"id": archive.id, "hash": archive.hash}
