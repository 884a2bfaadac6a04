"""Output that is uploaded to the server's object store instead of sent in a message: one part of a log at a time.

The agent announces the part with its digest, and the server answers with an address that accepts exactly that content.
The part counts as stored when the server has acknowledged the upload; until then it stays on this machine.
"""

from __future__ import annotations

import http.client
import struct
from typing import TYPE_CHECKING, Dict, List, Tuple
from urllib.parse import urlsplit

from ..kernel import route
from ..kernel.lazy import LazyModule

if TYPE_CHECKING:
    import hashlib

    from ...contract import agent as contract
else:
    hashlib = LazyModule("hashlib")

CHUNK_BYTES = 1024 * 1024
SECONDS = 60.0
_RECORD = struct.Struct("<qI")  # microseconds, and how many bytes follow


class Chunk:
    def __init__(self, task: str, offset: int, records: List[Tuple[int, bytes]]) -> None:
        self.task, self.offset = task, offset
        self.end = offset + sum(len(data) for _, data in records)
        self.payload = b"".join(part for at, data in records for part in (_RECORD.pack(at, len(data)), data))
        times = [at for at, _ in records]
        self.low, self.high = min(times), max(times)
        self.stored = False  # uploaded; the server hasn't acknowledged it yet

    def fields(self) -> contract.Chunk:
        return {
            "task": self.task,
            "offset": self.offset,
            "end": self.end,
            "low": self.low,
            "high": self.high,
            "size": len(self.payload),
            "sha256": hashlib.sha256(self.payload).hexdigest(),
            "stored": self.stored,
        }


def put(url: str, headers: Dict[str, str], payload: bytes) -> str:
    """Upload a part. Returns what went wrong; empty if it is stored."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port)
        connection.sock = route.connect(url, "", SECONDS)
        try:
            connection.request("PUT", "%s?%s" % (parts.path, parts.query), payload, headers)
            response = connection.getresponse()
            excerpt = response.read(300)
        finally:
            connection.close()
    except (http.client.HTTPException, OSError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    return "" if response.status == 200 else "HTTP %d %s" % (response.status, excerpt.decode("utf-8", "replace"))
