"""The guide's webhook, rule and receiver with a real server that is killed: nothing is lost, and nothing done twice."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.ports import free_port
from tests.harness.server import ROOT, Server, until

GUIDE = (ROOT / "docs" / "guides" / "automation.md").read_text(encoding="utf-8")
LIST = {"ascending": True, "include_target_types": ["run"]}


def block(name: str) -> str:
    found = re.search(rf"```\w+ {re.escape(name)}\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None, name
    return found[1]


class Receiver:
    """The guide's, as a process; it is away until it is started."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._program = folder / "receiver.py"
        self._program.write_text(block("receiver.py"))
        self._process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, self._program, str(self.port)], stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.rstrip("\n"))

    def ids(self) -> list[str]:
        return [line.split()[0] for line in list(self.lines)]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    found = Receiver(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def server(tmp_path: Path, receiver: Receiver) -> Iterator[Server]:
    one = Server(tmp_path / "home", flags=("--no-local-fleet",))
    one.home.mkdir()
    one.data.mkdir(parents=True)
    text = block("config.yml").replace(":8787/", f":{receiver.port}/")
    assert text != block("config.yml")
    (one.data / "config.yml").write_text(text)
    yield one
    one.close()


def event_ids(server: Server) -> list[str]:
    return [event["id"] for event in server.call("/api/events/list", LIST)]


def applied(server: Server) -> int:
    events = server.call("/api/events/list", {"ascending": True})
    return sum(event["message"] == "retrain is applied by rule resume" for event in events)


def test_a_killed_server_loses_no_message_and_acts_once(server: Server, receiver: Receiver) -> None:
    (server.home / "retrain.dstack.yml").write_text(block("retrain.dstack.yml"))
    (server.home / "train.dstack.yml").write_text("type: task\nname: train\ncommands: [ls]\n")
    server.start()
    server.cli("automation", "add", "-f", "retrain.dstack.yml")
    server.cli("apply", "-f", "train.dstack.yml", "-y", "-d")  # nowhere to run, so it fails
    until("the rule to apply", lambda: applied(server) == 1)
    until("an attempt to fail", lambda: any(one["failures"] for one in subscriptions(server)))
    server.kill()
    receiver.start()
    server.start()
    until("all events to come", lambda: set(event_ids(server)) <= set(receiver.ids()))
    server.kill()
    server.start()
    server.cli("stop", "retrain", "-y")
    until("what came after the second start", lambda: set(event_ids(server)) <= set(receiver.ids()))
    assert sorted(receiver.ids()) == sorted(set(receiver.ids()))
    assert applied(server) == 1
    assert all(not one["dead"] and not one["error"] for one in subscriptions(server))


def subscriptions(server: Server) -> list[dict[str, object]]:
    found: list[dict[str, object]] = server.call("/api/server/get_usage")["subscriptions"]
    return found
