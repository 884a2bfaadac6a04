"""A gateway's client of the control plane: its configuration, verdicts on tokens, traffic reports, orders for streams.

The server's address and the credential are in the folder of the machine's agent. They are reread for each call, because
the agent may have new ones.
"""

from __future__ import annotations

import hashlib
import os
import queue
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Union, cast
from urllib.parse import quote

from ..kernel import route
from ..kernel.link import Link, LinkError
from ..kernel.tasks import read_text
from .worker_requests import TokenVerdict

if TYPE_CHECKING:
    from ...contract.agent_gateway import (
        GatewayStream,
        GatewayStreams,
        NewConfiguration,
        RightsAnswer,
        RightsQuestion,
        SameConfiguration,
        TrafficReport,
        TrafficReports,
    )

WAIT = 25  # seconds that a poll may take
SERVICE_TOKEN = "dstack-service."  # the prefix of tokens for services
LONGEST = 1024  # characters of their claims, as in usecases/services/service_tokens.py


class PlaneClient:
    def __init__(self, data: str) -> None:
        self._data = data
        self._links: "queue.SimpleQueue[Link]" = queue.SimpleQueue()  # idle connections

    def configuration(self, since: str) -> "Union[NewConfiguration, SameConfiguration]":
        """The configuration as soon as its version isn't `since`; without services if it still is at the end of the
        poll. `ask_in`: seconds until the next poll. Raises LinkError."""
        path = "/agent/gateway?since=%s&wait=%d" % (quote(since, safe=""), WAIT)
        return cast("Union[NewConfiguration, SameConfiguration]", self._call("GET", path, None, WAIT))

    def report(self, reports: List[TrafficReport]) -> None:
        """Send traffic reports. Raises LinkError."""
        body: TrafficReports = {"reports": reports}
        self._call("POST", "/agent/gateway/traffic", body)

    def streams(self, orders: List[GatewayStream], pin: str) -> None:
        """Have orders for streams passed on to the agents of their instances, with this gateway's address and pin.
        Raises LinkError."""
        body: GatewayStreams = {"streams": orders, "pin": pin}
        self._call("POST", "/agent/gateway/streams", body)

    def rights(self, token: str, project: str, run: str) -> TokenVerdict:
        """200 if the token's owner may call this service, or every service of the project if `run` is empty; 403 if
        not; 503 if the control plane can't be reached, which gets the token's hash only."""
        claims = token.rpartition(".")[0] if token.startswith(SERVICE_TOKEN) else ""
        if len(claims) > LONGEST:
            return TokenVerdict(403)  # no valid token is that long, and the control plane would refuse the request
        hashed = hashlib.sha256(token.encode("utf-8")).hexdigest()
        body: RightsQuestion = {"token_hash": hashed, "claims": claims, "project": project, "run": run}
        try:
            answer = cast("RightsAnswer", self._call("POST", "/agent/gateway/rights", body))
        except LinkError:
            return TokenVerdict(503)
        if answer.get("allowed") is not True:
            return TokenVerdict(403)
        ends_in = answer.get("ends_in")
        return TokenVerdict(200, None if ends_in is None else float(ends_in))

    def _call(self, method: str, path: str, body: Optional[Mapping[str, object]], wait: float = 0.0) -> Dict[str, Any]:
        server, credential = (self._read(name) for name in ("server", "credential"))
        try:
            link = self._links.get_nowait()
        except queue.Empty:
            link = Link(lambda: self._read("via") or route.direct())
        try:
            return link.call(server, method, path, body, credential, wait)
        finally:
            self._links.put(link)

    def _read(self, name: str) -> str:
        return (read_text(os.path.join(self._data, name)) or "").strip()
