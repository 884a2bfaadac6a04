"""A gateway with TLS, from the command line to the client's handshake: a real server, its local fleet, nginx as its
agent runs it, and a real certificate authority."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from chalicelib.agent.gateway.role import remove
from chalicelib.domain import keys
from chalicelib.domain.certificates import Certificate, CertificateStatus, certificate_id
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore
from tests.bench.measure import wait_local_host
from tests.e2e.test_services_real import START
from tests.harness.pebble import Pebble, pebble
from tests.harness.ports import free_port
from tests.harness.server import Server, until
from tests.serving.caller import Answer, Caller
from tests.serving.nginx_door import installed

DOMAIN = "example.test"


@dataclass
class Edge:
    server: Server
    authority: Pebble
    http: int
    https: int
    store: SqliteStore
    id: str = ""

    def found(self, name: str) -> Certificate | None:
        host = f"{name}.{DOMAIN}"
        return nouns.find(self.store, Certificate, keys.certificate(certificate_id(self.id, host)))

    def plain(self, name: str) -> Answer:
        with Caller(("127.0.0.1", self.http)) as caller:
            caller.head("GET", "/echo?x=1", f"{name}.{DOMAIN}")
            return caller.answer()

    def secure(self, name: str, trusted: str) -> int:
        """The status that a client gets who trusts that authority alone; 0: it doesn't trust what it is shown."""
        context = ssl.create_default_context(cadata=trusted)
        with suppress(OSError), Caller(("127.0.0.1", self.https)) as caller:
            caller.socket = context.wrap_socket(caller.socket, server_hostname=f"{name}.{DOMAIN}")
            caller.send(f"GET /echo HTTP/1.1\r\nHost: {name}.{DOMAIN}\r\nConnection: close\r\n\r\n".encode())
            return int(caller.socket.recv(64).split()[1])
        return 0

    def orders(self) -> int:
        """That the authority has had."""
        return (self.authority.folder / "log").read_text().count("Added order")


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    installed()
    http, https = free_port(), free_port()
    with pebble(tmp_path_factory.mktemp("pebble"), http) as authority:
        env = {"DSTACK_ACME_SERVER": authority.directory, "DSTACK_ACME_CA": str(authority.folder / "cert.pem")}
        home = tmp_path_factory.mktemp("gateway") / "home"
        home.mkdir()
        server = Server(home, flags=("--local-hosts", "3"), env={"DSTACK_AGENT_RUNTIME": "process", **env})
        try:
            wait_local_host(server.start())
            store = SqliteStore(server.data / "plane.db")
            made = Edge(server, authority, http, https, store)
            set_up(made)
            until("nginx to listen", lambda: listens(http) and listens(https))
            yield made
        finally:
            server.close()
            for data in server.data.glob("agent*"):
                if data.is_dir():
                    remove(str(data), patience=1.0)


def set_up(edge: Edge) -> None:
    configuration = {"type": "gateway", "name": "door", "fleet": "local", "domain": DOMAIN}
    apply_file(edge, {**configuration, "http_port": edge.http, "https_port": edge.https})
    listed = json.loads(edge.server.cli("gateway", "get", "door", "--json"))
    edge.id = listed["id"]


def apply_file(edge: Edge, configuration: dict[str, Any]) -> str:
    path = edge.server.home / f"{configuration['name']}.dstack.yml"
    path.write_text(json.dumps(configuration))
    return edge.server.cli("apply", "-y", "-d", "-f", str(path))


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def apply(edge: Edge, name: str) -> str:
    configuration: dict[str, Any] = {"type": "service", "name": name, "port": 8000, "auth": False, "commands": [START]}
    configuration["resources"] = {"cpu": "1..", "memory": "0.1GB..", "disk": None}
    return apply_file(edge, configuration)


def test_a_service_is_reached_by_https_with_a_certificate_of_its_own(
    edge: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    root = edge.authority.root()
    assert f"https://chat.{DOMAIN}:{edge.https}/" in apply(edge, "chat")
    began = time.monotonic()
    until("https", lambda: edge.secure("chat", root) == 200)
    with capsys.disabled():
        print(f"\n  from the apply to https with a certificate: {time.monotonic() - began:.1f} s")
    answer = edge.plain("chat")
    assert (answer.status, answer.header("location")) == (308, f"https://chat.{DOMAIN}:{edge.https}/echo?x=1")
    events = edge.server.cli("event")
    assert f"certificate of chat.{DOMAIN}: finalizing → issued" in events and "PRIVATE KEY" not in events
    edge.server.cli("stop", "chat", "-y")


def test_who_kills_the_server_at_a_step_neither_loses_the_order_nor_places_another(
    edge: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call that died with the server is repeated once nobody can be making it any more: two minutes later. Every
    step is in `tests/engine/test_certificates.py`."""
    root, port = edge.authority.root(), int(edge.server.url.rpartition(":")[2])
    apply(edge, "killed")
    before, found = edge.orders(), None

    def ordered() -> bool:
        nonlocal found
        found = edge.found("killed")
        return found is not None and (found.order is not None or found.status is CertificateStatus.issued)

    until("its order, or what came of it", ordered)
    edge.server.stop(signal.SIGKILL)
    assert found is not None
    died_at = found.status.value
    placed = edge.orders()
    edge.server.start(port=port)
    until("https", lambda: edge.secure("killed", root) == 200, seconds=600)
    assert placed - before <= 1 and edge.orders() == placed
    with capsys.disabled():
        print(f"\n  killed when it was {died_at}: one order, one certificate")
    edge.server.cli("stop", "killed", "-y")
