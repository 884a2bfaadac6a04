"""What is shown while hosts are added."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cli.applying.host_progress import HostProgress
from cli.connection.session import Session

FLEET = {
    "id": "f",
    "spec": {"configuration": {"ssh_config": {"hosts": ["10.0.0.7"]}}},
    "instances": [{"id": "i", "name": "lab-0", "hostname": "10.0.0.7"}],
}


class Events:
    """A server that has this to tell at each look."""

    def __init__(self, *pages: list[str]) -> None:
        self._pages, self._count = list(pages), 0

    def post(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        assert path == "/api/events/list" and ("prev_id" in body) == (self._count > 0)
        found = []
        for text in self._pages.pop(0):
            self._count += 1
            event = {"id": f"e{self._count}", "recorded_at": f"t{self._count}", "message": text}
            found.append({**event, "targets": [{"id": "i"}]})
        return found


def shown(*pages: list[str]) -> list[list[str]]:
    progress = HostProgress(cast(Session, SimpleNamespace(client=Events(*pages))))
    return [progress.news(FLEET) for _ in pages]


def test_each_step_of_a_host_is_a_line() -> None:
    steps = [
        "created: add host",
        "done: install the agent",
        "undone: install the agent",
        "Unfit: there is no Docker Engine",
    ]
    assert shown(steps) == [["  10.0.0.7: install the agent", "  10.0.0.7: undone: install the agent"]]


def test_what_is_tried_again_is_said_once() -> None:
    refused = "Transient: me@10.0.0.7: [Errno 111] Connection refused"
    line = "  10.0.0.7: me@10.0.0.7: [Errno 111] Connection refused; trying again"
    done_step, there = "done: log in and look at the host", "  10.0.0.7: log in and look at the host"
    assert shown([refused, refused], [refused, done_step], [refused]) == [[line], [there], [line]]
