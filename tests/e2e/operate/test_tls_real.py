"""`dstack server` with a certificate of its own, from files and from a real authority."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bench.measure import submit, task, wait_local_host
from tests.e2e.operate import front
from tests.e2e.operate.front import HOST, Front
from tests.harness.gates import gate
from tests.harness.pebble import made_certificate, pebble
from tests.harness.ports import free_port
from tests.harness.server import Server, until
from tests.runtime.live import log_of, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("tls")
    files = front.certificate(folder)
    env = {"DSTACK_AGENT_RUNTIME": "process", "SSL_CERT_FILE": str(files[0])}
    flags = ("--fake-cloud", "--no-local-fleet", "--tls-cert", str(files[0]), "--tls-key", str(files[1]))
    server = Server(folder / "home", flags, env)
    server.home.mkdir()
    try:
        with front.trusting(files[0]):
            server.start()
            made = Front(server, server.url, files[0])
            made.join()
            yield made
    finally:
        server.close()


def shown(port: int) -> str:
    """The certificate that a new client is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 60) as plain, context.wrap_socket(plain) as sock:
        return ssl.DER_cert_to_PEM_cert(sock.getpeercert(binary_form=True) or b"")


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_a_job_runs_and_bytes_come_and_go(secure: Front) -> None:
    assert secure.url.startswith(f"https://{HOST}:")
    front.a_job_runs_and_bytes_come_and_go(secure)


def test_events_come_as_they_happen(secure: Front) -> None:
    front.events_come_as_they_happen(secure)


def test_a_large_upload_arrives(secure: Front) -> None:
    front.a_large_upload_arrives(secure, 2**20)


def test_the_command_line_uses_it(secure: Front) -> None:
    assert "cloud" in secure.server.cli("fleet")


def test_plain_http_is_refused(secure: Front) -> None:
    with socket.create_connection(("127.0.0.1", port_of(secure.url)), 60) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            assert not plain.recv(100).startswith(b"HTTP")
    assert secure.get("/healthz").status == 200


def test_a_renewed_certificate_interrupts_no_stream(secure: Front) -> None:
    files = secure.trusted, secure.trusted.with_name("privkey.pem")
    before = [path.read_text() for path in files]
    with secure.job("renewing") as stream:
        renewed = made_certificate(HOST)
        for path, text in zip(reversed(files), reversed(renewed), strict=True):
            path.write_text(text)  # as certbot does: one after the other, each in place
        until("new clients to get it", lambda: shown(port_of(secure.url)) == renewed[0])
        stream.send(b"still here")
        assert stream.receive(60) == b"still here"
        for path, text in zip(files, before, strict=True):
            path.write_text(text)
        until("the former one to be back", lambda: shown(port_of(secure.url)) == before[0])
        stream.close()


def test_this_machines_jobs_survive_a_restart(tmp_path: Path) -> None:
    """Its agent reaches the server at a port of loopback that each start chooses anew."""
    files = front.certificate(tmp_path)
    flags = ("--tls-cert", str(files[0]), "--tls-key", str(files[1]))
    server = Server(tmp_path / "home", flags, {"DSTACK_AGENT_RUNTIME": "process", "SSL_CERT_FILE": str(files[0])})
    server.home.mkdir()
    try:
        with front.trusting(files[0]), gate() as goes_on:
            server.start()
            wait_local_host(server)
            submit(server, task("staying", "echo begun", goes_on.command, "echo over"))
            until("the job to write", lambda: "begun" in log_of(server, "staying"))
            assert server.stop() == 0
            server.start()
            goes_on.open()
            assert wait_for(server, "staying", "done", "failed")["status"] == "done"
            assert "over" in log_of(server, "staying")
    finally:
        server.close()


def test_a_certificate_is_got_from_an_authority_and_kept(tmp_path: Path) -> None:
    asked, listening = free_port(), free_port()
    server = Server(tmp_path / "home")
    server.home.mkdir()
    (tmp_path / "pebble").mkdir()
    with pebble(tmp_path / "pebble", asked) as authority:
        authority.knows("dstack.example.test", "127.0.0.1")
        (tmp_path / "ca.pem").write_text(authority.ca)
        server.env |= {
            "DSTACK_ACME_SERVER": authority.directory,
            "DSTACK_ACME_CA": str(tmp_path / "ca.pem"),
            "DSTACK_SERVER_ACME_PORT": str(asked),
            "DSTACK_SERVER_TLS_ACME": "dstack.example.test",
            "no_proxy": "127.0.0.1,localhost,dstack.example.test",
        }
        try:
            server.start("--no-local-fleet", port=listening)
            assert server.url == f"https://dstack.example.test:{listening}"
            (tmp_path / "root.pem").write_text(authority.root())
            until("the certificate", lambda: trusted(listening, tmp_path / "root.pem"))
            first = shown(listening)
            sent_on = subprocess.run(
                ["curl", "-s", "-w", "%{http_code} %{redirect_url}", f"http://127.0.0.1:{asked}/console?a=b"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert sent_on.stdout == f"308 https://dstack.example.test:{listening}/console?a=b"
            assert server.stop() == 0
            authority.stop()
            server.start("--no-local-fleet", port=listening)
            assert shown(listening) == first and trusted(listening, tmp_path / "root.pem")
        finally:
            server.close()


def trusted(port: int, root: Path) -> bool:
    """Whether a client that trusts this root alone takes what it is shown."""
    context = ssl.create_default_context(cafile=str(root))
    try:
        with socket.create_connection(("127.0.0.1", port), 60) as plain:
            context.wrap_socket(plain, server_hostname="dstack.example.test").close()
    except ssl.SSLCertVerificationError:
        return False
    return True
