"""A pair of real servers, started as docs/operate/standby.md says, one address before them, and a job that goes on
while they take over from each other."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import orjson
import pytest

from tests.bench.measure import submit, task
from tests.harness.gates import gate
from tests.harness.ports import free_port
from tests.harness.server import ROOT, HttpError, Server, until
from tests.runtime.live import log_of, run_of, wait_for

PAGE = (ROOT / "docs" / "operate" / "standby.md").read_text(encoding="utf-8")
START = re.compile(r"(?m)^\$ dstack server (--pair .*) --host \S+ --data-dir /srv/dstack$")
LEASE = 8  # seconds: a server that can't renew it for so long on busy cores would lose it


def answer(url: str, path: str) -> tuple[int, dict[str, object]]:
    """Status 0: nobody answers."""
    try:
        with urllib.request.urlopen(url + path, timeout=5) as found:
            return found.status, orjson.loads(found.read())
    except urllib.error.HTTPError as refused:
        return refused.code, orjson.loads(refused.read() or b"{}")
    except OSError:
        return 0, {}


class Balancer:
    """Passes connections to whichever server is ready, as a load balancer does that asks `/readyz`."""

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._listener = ports, socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        ready = next((port for port in self._ports if answer(f"http://127.0.0.1:{port}", "/readyz")[0] == 200), None)
        with client, suppress(OSError):
            if ready is None:
                return
            with socket.create_connection(("127.0.0.1", ready)) as server:
                threading.Thread(target=_pump, args=(server, client), daemon=True).start()
                _pump(client, server)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Member(Server):
    """A server of the pair, at a port of its own."""

    port = 0

    def _came_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError("the server ended:\n" + "\n".join(self.lines))
        self.url = f"http://127.0.0.1:{self.port}"
        return answer(self.url, "/healthz")[0] == 200

    def role(self) -> str:
        return str(answer(self.url, "/healthz")[1].get("role", ""))

    def join(self) -> Member:
        self.start(port=self.port)
        return self


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    """Three servers: the third has the machine of the first, with a new data folder. The simulated cloud is one."""
    ports = [free_port() for _ in range(3)]
    one, two = START.findall(PAGE)
    env = {
        "DSTACK_BACKUP_KEY_FILE": str(tmp_path / "key"),
        "DSTACK_PAIR_EVERY": "1s",
        "DSTACK_PAIR_LEASE": f"{LEASE}s",
        "DSTACK_AGENT_RUNTIME": "process",
    }
    found: list[Member] = []
    with closing(Balancer(ports)) as balancer:
        for number, port in enumerate(ports):
            home = tmp_path / str(number)
            shown = (two if found else one).replace("/mnt/pair/dstack", str(tmp_path / "place"))
            flags = ("--fake-cloud", *shlex.split(shown.replace("https://dstack.example.com", balancer.url)))
            member = Member(home, flags, env)
            member.port = port
            member.data.mkdir(parents=True, mode=0o700)
            if found:
                (member.data / "fake-cloud").symlink_to(found[0].data / "fake-cloud")
            found.append(member)
        try:
            yield found
        finally:
            for member in found:
                print(f"--- {member.port}", *member.lines, sep="\n")  # shown if the test fails
                if member.process is not None and member.process.poll() is None:
                    member.process.send_signal(signal.SIGCONT)
                member.close()


@pytest.mark.slow
def test_a_job_goes_on_while_its_servers_are_killed_and_paused(members: list[Member]) -> None:
    first, second, third = members
    (first.data / "fake-cloud").mkdir()
    with gate() as one, gate() as two:
        alone = Server(first.home, ("--fake-cloud", "--no-local-fleet"), {"DSTACK_AGENT_RUNTIME": "process"})
        alone.start().stop()
        first.join()
        assert answer(first.url, "/healthz")[1] == {"alive": True, "role": "decides", "epoch": 1}
        second.join()
        until("it to have a copy", lambda: "decides (epoch 1).'" in str(answer(second.url, "/readyz")))
        status, said = answer(second.url, "/readyz")
        shown = orjson.dumps(said).decode().replace(socket.gethostname(), "server-a")
        assert status == 503 and f"$ curl http://10.0.0.12:3000/readyz\n{shown}\n" in PAGE
        until("its line", lambda: f"\n{second.lines[0]}\n" in PAGE)
        with pytest.raises(HttpError) as refused:
            second.call("/api/projects/list")
        assert refused.value.status == 503 and "This server stands by" in refused.value.body

        fleet = {"spec": {"configuration": {"type": "fleet", "name": "pool", "nodes": 1}}}
        first.call("/api/project/main/fleets/apply", {"plan": fleet, "force": False})
        submit(first, task("goes-on", "echo begun", one.command, "echo on", two.command, "echo over"))
        until("its output", lambda: "begun" in log_of(first, "goes-on"))
        job = run_of(first, "goes-on")["latest_job_submission"]["id"]
        begun = orjson.loads(_copied(first))
        until("a copy with the running job", lambda: orjson.loads(_copied(first))["moment"] > begun["moment"])

        first.kill()
        until("the second to decide", lambda: second.role() == "decides")
        until("it to say so", lambda: any("only looks until" in line for line in second.lines), seconds=20)
        one.open()
        until("the output to go on", lambda: "on" in log_of(second, "goes-on").split())
        second.cli("server", "restored", "--data-dir", str(second.data), "--go-on")

        with pytest.raises(AssertionError, match="has taken over"):
            first.join()
        refusal = first.lines[-1].replace(str(first.data), "/srv/dstack").replace(socket.gethostname(), "server-b")
        assert f"\n{refusal}\n" in PAGE
        third.join()
        until("the third to stand by", lambda: third.role() == "stands by")
        assert second.process is not None
        second.process.send_signal(signal.SIGSTOP)
        until("the third to decide", lambda: third.role() == "decides")
        two.open()
        second.process.send_signal(signal.SIGCONT)
        assert second.process.wait(timeout=120) != 0
        until("its reason", lambda: any("decides nothing" in line for line in second.lines))
        third.cli("server", "restored", "--data-dir", str(third.data), "--go-on")
        run = wait_for(third, "goes-on", "done", "failed", "terminated")
        assert (run["status"], run["latest_job_submission"]["id"]) == ("done", job), run
        assert log_of(third, "goes-on").split() == ["begun", "on", "over"]
        metrics = urllib.request.Request(f"{third.url}/metrics", headers={"Authorization": f"Bearer {third.token}"})
        with urllib.request.urlopen(metrics) as found:
            assert b"dstack_pair_epoch 3" in found.read()
        assert third.stop() == 0
        assert orjson.loads(_copied(third))["rests"] is True


def _copied(server: Member) -> bytes:
    """The lease."""
    folder = server.home.parent / "place" / "lease"
    return max(path for path in folder.iterdir() if path.name.isdigit()).read_bytes()
