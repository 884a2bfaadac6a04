"""Output that goes to the server's object store instead of into a message: one part of one task's log at a time.

The agent describes the part before the server says where to put it, so the address is good for exactly that content.
The part counts as stored once the server has heard that it is there; until then the agent keeps it.
"""

from __future__ import annotations

import http.client
import struct
from typing import TYPE_CHECKING, Any, Dict, List, Tuple
from urllib.parse import urlsplit

from ..kernel import route
from ..kernel.lazy import LazyModule

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = LazyModule("hashlib")

CHUNK_BYTES = 1024 * 1024
SECONDS = 60.0
_PIECE = struct.Struct("<qI")  # when, and how many bytes follow


class Chunk:
    def __init__(self, task: str, offset: int, records: List[Tuple[int, bytes]]) -> None:
        self.task, self.offset = task, offset
        self.end = offset + sum(len(data) for _, data in records)
        self.payload = b"".join(part for at, data in records for part in (_PIECE.pack(at, len(data)), data))
        times = [at for at, _ in records]
        self.low, self.high = min(times), max(times)
        self.stored = False  # put, which the server hasn't heard

    def fields(self) -> Dict[str, Any]:
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
    """Returns what went wrong; empty if it is stored."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port)
        connection.sock = route.connected(url, "", SECONDS)
        try:
            connection.request("PUT", "%s?%s" % (parts.path, parts.query), payload, headers)
            response = connection.getresponse()
            said = response.read(300)
        finally:
            connection.close()
    except (http.client.HTTPException, OSError, ValueError) as problem:
        return str(problem) or type(problem).__name__
    return "" if response.status == 200 else "HTTP %d %s" % (response.status, said.decode("utf-8", "replace"))
