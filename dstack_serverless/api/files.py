"""Archives of files over HTTP: each user sees only their own.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import Request, given

if TYPE_CHECKING:
    from chalicelib import contract


def get_archive_by_hash(
    *,
    hash: str,
) -> Request[contract.Archive]:
    """The caller's archive with this hash, so that it needn't be uploaded again.

    For any active user.
    """
    return Request(
        "POST",
        "/api/files/get_archive_by_hash",
        body=given(
            hash=hash,
        ),
        safe=True,
    )


def upload_archive(
    *,
    file: bytes,
    file_name: str,
) -> Request[contract.Archive]:
    """Uploads an archive, named by the SHA-256 of its content, for `files` of a run.

    For any active user.
    """
    return Request(
        "POST",
        "/api/files/upload_archive",
        file=file,
        file_name=file_name,
    )
