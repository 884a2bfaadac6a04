"""Calls into nginx's shared memory, over its unix socket and one persistent connection."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, Dict, List, Mapping, Optional

PATIENCE = 10.0


class ControlError(Exception):
    """nginx doesn't answer, or refuses a call."""


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("nginx", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


class Control:
    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: Optional[_Unix] = None

    def keys(self) -> List[str]:
        return list(self._call("GET", "/keys")["keys"])

    def set(self, entries: Mapping[str, Optional[str]]) -> None:
        """Set all entries or none; None removes an entry."""
        self._call("POST", "/set", {key: False if text is None else text for key, text in entries.items()})

    def counts(self, runs: List[str], jobs: List[str]) -> Dict[str, Any]:
        return self._call("POST", "/counts", {"runs": runs, "jobs": jobs})

    def forget(self) -> None:
        """Delete every cached verdict about a token."""
        self._call("POST", "/forget", {})

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, method: str, path: str, body: Any = None) -> Dict[str, Any]:
        """Call nginx; once more on a fresh connection if the open one has ended, since every call may be repeated."""
        data = None if body is None else json.dumps(body).encode("utf-8")
        for reused in (self._connection is not None, False):
            if self._connection is None:
                self._connection = _Unix(self._path)
            try:
                self._connection.request(method, path, data)
                response = self._connection.getresponse()
                text = response.read()
                break
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                if not reused:
                    raise ControlError("nginx doesn't answer at %s: %s" % (self._path, problem)) from None
        if response.status != 200:
            raise ControlError("nginx refuses %s %s: %s" % (method, path, text[:300].decode("utf-8", "replace")))
        found: Dict[str, Any] = json.loads(text)
        return found
