"""A plain client of Crusoe Cloud, which knows how to sign and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import requests

from chalicelib.domain.instants import SECOND
from tests.backends.clock import Clock
from tests.backends.crusoe.fake import KEY, PROJECT, SECRET, signature

VM, EAST = "c1a.2x", "us-east1-a"
INSTANCES, DISKS = f"/projects/{PROJECT}/compute/vms/instances", f"/projects/{PROJECT}/storage/disks"


class Client:
    """Signs each request and raises nothing: the status and the body."""

    def __init__(self, clock: Clock, session: requests.Session, base: str, secret: str = SECRET) -> None:
        self._clock, self._session, self._base, self._secret = clock, session, base, secret

    def __call__(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        prepared = requests.Request(
            method, f"{self._base}/v1{path}", params=dict(sorted(query.items())), json=body
        ).prepare()
        timestamp = datetime.fromtimestamp(self._clock.at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        signed = signature(self._secret, method, prepared.path_url, timestamp)
        prepared.headers.update({"X-Crusoe-Timestamp": timestamp, "Authorization": f"Bearer 1.0:{KEY}:{signed}"})
        answer = self._session.send(prepared)
        self.headers = answer.headers
        return answer.status_code, answer.json()


def machine(name: str = "one", **other: Any) -> dict[str, Any]:
    return {"name": name, "type": VM, "location": EAST, "ssh_public_key": "ssh-ed25519 AAAA", **other}


def made(answer: tuple[int, Any]) -> str:
    status, body = answer
    assert status == 200, body
    return str(body["operation"]["metadata"]["id"])


def names(answer: tuple[int, Any]) -> list[str]:
    return [each["name"] for each in answer[1]["items"]]
