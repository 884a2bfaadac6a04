"""Calls of the resources under `/api/v1`, with the headers and the query that they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from chalicelib.api import dispatch
from chalicelib.usecases.context import Plane
from tests.api.rig import ADMIN, Rig

TASK = {"type": "task", "commands": ["echo hello"], "resources": {"cpu": 1}}


@dataclass(frozen=True)
class Client:
    plane: Plane
    project: str
    token: str | None = ADMIN

    @classmethod
    def of(cls, rig: Rig, **changes: Any) -> Client:
        return cls(rig.world.plane, rig.project.name, **changes)

    @property
    def runs(self) -> str:
        return f"/api/v1/projects/{self.project}/runs"

    def call(self, method: str, url: str, body: Any = None, **headers: str) -> dispatch.Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent["authorization"] = f"Bearer {self.token}"
        split = urlsplit(url)
        query = dict(parse_qsl(split.query, keep_blank_values=True))
        content = b"" if body is None else orjson.dumps(body)
        return dispatch.answer(self.plane, dispatch.Request(method, split.path, query, sent, content))

    def ok(self, method: str, url: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        reply = self.call(method, url, body, **headers)
        assert reply.status == status, reply
        return orjson.loads(reply.body) if reply.body else None

    def refused(self, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, str, Any]:
        """The status and the code of a problem, and all of it."""
        reply = self.call(method, url, body, **headers)
        assert reply.headers["Content-Type"] == "application/problem+json", reply
        problem = orjson.loads(reply.body)
        return reply.status, problem["code"], problem
