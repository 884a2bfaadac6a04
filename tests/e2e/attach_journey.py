"""The genuine client attaches to jobs of a server of its own: what it shows, as one JSON line.

A program, because it is run in a network namespace of its own: agents serve the log of jobs in the machine's network at
one port, which only the first of several agents on one machine gets.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import wait_local_host
from tests.e2e.peer import VENV, Peer, joined
from tests.harness.server import PATIENCE, Server, until

SMALL = "resources: {cpu: 1.., memory: 0.1GB.., disk: 1GB..}\nfleets: [local]\n"


@dataclass
class Client:
    """A command of the genuine client that goes on, on a terminal of its own."""

    process: subprocess.Popen[bytes]
    screen: Path

    @property
    def text(self) -> str:
        return self.screen.read_text().replace("\r\n", "\n")

    def shows(self, text: str) -> None:
        def shown() -> bool:
            return text in self.text or self.process.poll() is not None

        until(f"{text!r} on the screen", shown)
        if text not in self.text:
            raise SystemExit(f"the client ended with {self.process.poll()}:\n{self.text}")

    def end(self) -> int:
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def client(peer: Peer, *arguments: str) -> Iterator[Client]:
    screen = peer.home / f"screen-{uuid.uuid4().hex}"
    argv = [*peer.server.prefix, "script", "-qefc", " ".join([str(VENV / "bin" / "dstack"), *arguments]), "/dev/null"]
    with screen.open("wb") as out:
        process = subprocess.Popen(
            argv, cwd=peer.home, env=peer.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield Client(process, screen)
    finally:
        process.kill()
        process.wait()


def task(peer: Peer, name: str, *commands: str) -> str:
    lines = "".join(f"  - {command}\n" for command in commands)
    (peer.home / f"{name}.yml").write_text(f"type: task\nname: {name}\ncommands:\n{lines}{SMALL}")
    return f"{name}.yml"


def held(gate: Path) -> str:
    return f"until [ -e {gate} ]; do sleep 0.1; done"


def attached(peer: Peer, gate: Path) -> dict[str, object]:
    """An attached `apply`: the log while the job runs, and its end."""
    file = task(peer, "attached", "echo first line", held(gate), "echo last line", "exit 7")
    with client(peer, "apply", "-f", file, "-y") as found:
        found.shows("first line")
        gate.touch()
        status = found.end()
        return {"status": status, "shown": found.text[found.text.index("first line") :]}


def logged_in(peer: Peer, gate: Path) -> dict[str, object]:
    """`attach`, and the SSH configuration that it leaves: it leads into the job."""
    peer.run("apply", "-f", task(peer, "held", "echo here I am", held(gate)), "-y", "-d")
    with client(peer, "attach", "held", "--logs") as found:
        found.shows("here I am")
        ssh = ["ssh", "-F", str(peer.home / ".dstack/ssh/config"), "held", "echo $DSTACK_RUN_NAME; exit 3"]
        done = subprocess.run(ssh, capture_output=True, text=True, timeout=PATIENCE, check=False)
        gate.touch()
        return {"ssh": [done.returncode, done.stdout], "status": found.end()}


def short(peer: Peer) -> dict[str, object]:
    """A job that is over before the client could attach."""
    with client(peer, "apply", "-f", task(peer, "short", "echo just a moment"), "-y") as found:
        status = found.end()
        return {"status": status, "shown": "just a moment" in found.text}


def main(folder: Path) -> None:
    server = Server(folder / "home", env={"DSTACK_AGENT_RUNTIME": "process"})
    server.home.mkdir()
    try:
        server.start()
        wait_local_host(server)
        peer = joined(server, folder / "peer")
        gates = [folder / f"gate-{number}" for number in range(2)]
        seen = {"attached": attached(peer, gates[0]), "logged_in": logged_in(peer, gates[1]), "short": short(peer)}
        spec = server.call("/api/project/main/runs/get", {"run_name": "held"})["run_spec"]
        seen["key"] = {"same": spec["ssh_key_pub"] == server.call("/api/users/get_my_user")["ssh_public_key"]}
        print(json.dumps(seen))
    finally:
        server.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main(Path(sys.argv[1]))
