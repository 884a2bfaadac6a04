"""The control plane as a gateway needs it: what to serve, who may call, and where to put what was counted.

The gateway's machine runs an agent, too. Their folder says which server it is and holds the credential, which is reread
for each call, since the agent may have a new one.
"""

from __future__ import annotations

import hashlib
import os
import queue
from typing import Any, Dict, List
from urllib.parse import quote

from ..kernel import route
from ..kernel.link import Link, LinkError
from ..kernel.tasks import read_text
from .worker_requests import TokenVerdict

WAIT = 25  # seconds that a poll may take
SERVICE_TOKEN = "dstack-service."  # how tokens for services begin
LONGEST = 1024  # characters of their claims, as in usecases/services/service_tokens.py


class PlaneClient:
    def __init__(self, data: str) -> None:
        self._data = data
        self._links: "queue.SimpleQueue[Link]" = queue.SimpleQueue()  # those that nobody uses

    def configuration(self, since: str) -> Dict[str, Any]:
        """What is to be served, once it isn't `since` any more; without services if it still is. `ask_in`: seconds
        until the next question. Raises LinkError."""
        return self._call("GET", "/agent/gateway?since=%s&wait=%d" % (quote(since, safe=""), WAIT), None, WAIT)

    def report(self, reports: List[Dict[str, Any]]) -> None:
        """Raises LinkError."""
        self._call("POST", "/agent/gateway/traffic", {"reports": reports})

    def streams(self, orders: List[Dict[str, Any]], pin: str) -> None:
        """Have these passed on to the agents of their instances, with this gateway's address and the pin by which they
        know it. Raises LinkError."""
        self._call("POST", "/agent/gateway/streams", {"streams": orders, "pin": pin})

    def rights(self, token: str, project: str, run: str) -> TokenVerdict:
        """200 if the token is of somebody who may call this service, or all of the project's if `run` is empty, 403 if
        not, 503 if nobody can say. The token stays here."""
        claims = token.rpartition(".")[0] if token.startswith(SERVICE_TOKEN) else ""
        if len(claims) > LONGEST:
            return TokenVerdict(403)  # it is nobody's, and the control plane would take no such question
        hashed = hashlib.sha256(token.encode("utf-8")).hexdigest()
        asked = {"token_hash": hashed, "claims": claims, "project": project, "run": run}
        try:
            said = self._call("POST", "/agent/gateway/rights", asked)
        except LinkError:
            return TokenVerdict(503)
        if said.get("allowed") is not True:
            return TokenVerdict(403)
        ends_in = said.get("ends_in")
        return TokenVerdict(200, None if ends_in is None else float(ends_in))

    def _call(self, method: str, path: str, body: Any, wait: float = 0.0) -> Dict[str, Any]:
        server, credential = (self._read(name) for name in ("server", "credential"))
        try:
            link = self._links.get_nowait()
        except queue.Empty:
            link = Link(lambda: self._read("via") or route.straight())
        try:
            return link.call(server, method, path, body, credential, wait)
        finally:
            self._links.put(link)

    def _read(self, name: str) -> str:
        return (read_text(os.path.join(self._data, name)) or "").strip()
