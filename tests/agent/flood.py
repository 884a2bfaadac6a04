"""An agent whose job prints far more than a server takes at once, and a server that counts what it gets."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from chalicelib.agent.program import build
from tests.agent.server import PATIENCE, Plane, Server

MEGABYTE = 1 << 20
TASK = "flood"
# Prints so many bytes, no faster than so many a second, once a file is there; then stays until another is.
PRINTER = """
import os, sys, time
gate, size, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
while not os.path.exists(gate + "/go"): time.sleep(0.02)
line, begun, sent = (b"x" * 99 + b"\\n") * 655, time.monotonic(), 0
while sent < size:
    part = line[: size - sent]
    os.write(1, part) if len(part) < 4096 else [os.write(1, part[at:at + 4096]) for at in range(0, len(part), 4096)]
    sent += len(part)
    ahead = sent / rate - (time.monotonic() - begun)
    if ahead > 0: time.sleep(ahead)
open(gate + "/printed", "w").close()
while not os.path.exists(gate + "/end"): time.sleep(0.02)
"""


class Counting(Plane):
    """Of a log that is too much to keep, only its length."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def _take(self, body: dict[str, Any]) -> None:
        chunks, body["logs"] = body["logs"], []
        super()._take(body)
        for chunk in chunks:
            end = chunk["offset"] + sum(len(base64.b64decode(text)) for _, text in chunk["records"])
            self.length = max(self.length, end) if chunk["offset"] <= self.length else self.length

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = super()._answer(body)
        return {**answer, "logs": [{"task": each["task"], "offset": self.length} for each in answer["logs"]]}


class Flooded:
    """The shipped file as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.plane = folder, folder / "data", Counting()
        self.server = Server(self.plane)
        build.write(str(folder / "agent.pyz"))
        command = [
            sys.executable,
            "-I",
            str(folder / "agent.pyz"),
            "--server",
            self.server.url,
            "--data",
            str(self.data),
        ]
        command += ["--instance", "i-1", "--runtime", "process", "--users", "agent", "--wait", "20"]
        environment = {"PATH": os.environ["PATH"], "DSTACK_AGENT_TOKEN": self.plane.token}
        with (folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log, start_new_session=True)

    def __enter__(self) -> Flooded:
        self.plane.until(lambda: self.plane.facts)
        return self

    def __exit__(self, *_: object) -> None:
        self.plane.gone = True
        with self.plane.news:
            self.plane.news.notify_all()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.server.stop()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def supervisor(self) -> int:
        return int((self.data / "tasks" / TASK / "pid").read_text())

    def flood(self, size: int, rate: int) -> None:
        """Returns once all of it is printed. `rate`: MB/s, if the machine can."""
        self.size = size
        argv = [sys.executable, "-S", "-c", PRINTER, str(self.folder), str(size), str(rate * MEGABYTE)]
        self.plane.want(TASK, "run", spec={"id": TASK, "commands": argv, "env": {}})
        self.plane.until(lambda: self.plane.reports.get(TASK, {}).get("state") == "running")
        (self.folder / "go").touch()
        self.plane.until((self.folder / "printed").exists)

    def arrived(self) -> None:
        """Returns once the server has all of it. The terminal makes two bytes of a line's end."""
        self.plane.until(lambda: self.plane.length >= self.size)
        (self.folder / "end").touch()
        report = self.plane.until(lambda: self.plane.reports[TASK].get("log_end") if self.over() else None)
        self.plane.until(lambda: self.plane.length == report)

    def over(self) -> bool:
        return self.plane.reports[TASK].get("state") == "exited"


def peak_mb(pid: int) -> float:
    """The most memory that a process has had."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) / 1024, 1)
