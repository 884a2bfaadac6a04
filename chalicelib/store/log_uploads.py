"""Parts of logs that agents upload to the bucket themselves, so that no function has to be paid for passing them on.

The URL that an agent gets is signed for one object, its size and its content, and is valid for a few minutes. The
object is named by its content, so uploading it twice changes nothing, and it belongs to the log only once its record is
written.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Protocol

from chalicelib.domain.log_chunks import LogChunk
from chalicelib.store.blobs import S3Blobs
from chalicelib.store.log_blobs import BlobLogs

MINUTES = 5


@dataclass(frozen=True)
class LogUpload:
    url: str
    headers: dict[str, str]


class Uploads(Protocol):
    def offer(self, project_id: str, job_id: str, first: int, size: int, digest: str) -> LogUpload | int:
        """Where to upload the log's part from byte `first` on, or the log's end if it isn't `first`."""

    def enter(self, chunk: LogChunk, digest: str) -> int:
        """Add an uploaded chunk to the log. Returns the log's end."""


class S3Uploads:
    def __init__(self, logs: BlobLogs, blobs: S3Blobs) -> None:
        self._logs, self._blobs = logs, blobs

    def offer(self, project_id: str, job_id: str, first: int, size: int, digest: str) -> LogUpload | int:
        end = self._logs.end(project_id, job_id)
        if end != first:
            return end
        checksum = base64.b64encode(bytes.fromhex(digest)).decode()
        name = self._logs.name(project_id, job_id, first, digest)
        return LogUpload(*self._blobs.signed(name, size, checksum, MINUTES * 60))

    def enter(self, chunk: LogChunk, digest: str) -> int:
        end = self._logs.end(chunk.project_id, chunk.job_id)
        if end != chunk.first:
            return end
        return self._logs.enter(chunk.with_(blob=self._logs.name(chunk.project_id, chunk.job_id, chunk.first, digest)))
