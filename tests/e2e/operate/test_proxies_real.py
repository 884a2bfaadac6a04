"""The configurations in docs/operate/proxies, as real proxies run them before a real server."""

from __future__ import annotations

import http.client
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.operate import front
from tests.e2e.operate.front import HOST, Front
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, ROOT, Server, until
from tests.serving.nginx_door import installed

pytestmark = pytest.mark.slow
EXAMPLES = ROOT / "docs/operate/proxies"
PROGRAMS = ROOT / ".venvs/operate/bin"
UPLOAD = 7 * 2**20  # bytes: more than nginx takes by default, and nearly all that the server takes


def example(name: str, replaced: Mapping[str, str]) -> str:
    """An example with this machine's ports and files; each place must be there."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for written, here in replaced.items():
        assert written in text, f"{name} no longer has {written}"
        text = text.replace(written, here)
    return text


def caddy(folder: Path, port: int, server: str, files: tuple[Path, Path]) -> list[str]:
    site = f"https://{HOST}:{port} {{\n\ttls {files[0]} {files[1]}"
    text = example("Caddyfile", {"dstack.example.com {": site, "127.0.0.1:3000": server})
    head = f"{{\n\tadmin off\n\tauto_https disable_redirects\n\tstorage file_system {folder}/caddy\n}}\n"
    (folder / "Caddyfile").write_text(head + text)
    return [str(PROGRAMS / "caddy"), "run", "--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"]


def nginx(folder: Path, port: int, server: str, files: tuple[Path, Path]) -> list[str]:
    here = {"443 ssl": f"127.0.0.1:{port} ssl", "dstack.example.com": HOST, "127.0.0.1:3000": server}
    text = example("nginx.conf", {**here, "/etc/ssl/dstack": str(files[0].parent)})
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    events = "daemon off; worker_processes 1; events { worker_connections 512; }"
    whole = f"{events}\npid {folder}/pid;\nhttp {{\n{temporary}access_log off;\n{text}}}\n"
    (folder / "whole.conf").write_text(whole)
    installed()
    return ["/usr/sbin/nginx", "-p", str(folder), "-e", f"{folder}/error", "-c", f"{folder}/whole.conf"]


def traefik(folder: Path, port: int, server: str, files: tuple[Path, Path]) -> list[str]:
    dynamic = folder / "dstack.yml"
    replaced = {"/etc/ssl/dstack": str(files[0].parent), "127.0.0.1:3000": server, "dstack.example.com": HOST}
    dynamic.write_text(example("traefik-dstack.yml", replaced))
    static = example("traefik.yml", {":443": f"127.0.0.1:{port}", "/etc/traefik/dstack.yml": str(dynamic)})
    (folder / "traefik.yml").write_text(static + "global: {checkNewVersion: false, sendAnonymousUsage: false}\n")
    return [str(PROGRAMS / "traefik"), f"--configfile={folder}/traefik.yml"]


PROXIES: Mapping[str, Callable[[Path, int, str, tuple[Path, Path]], list[str]]] = {
    each.__name__: each for each in (caddy, nginx, traefik)
}


@contextmanager
def running(argv: list[str], folder: Path) -> Iterator[None]:
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]} isn't installed here; `make test` brings it")
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder, env={"HOME": str(folder)})
    try:
        yield
        assert process.poll() is None, (folder / "proxy.log").read_text()
    finally:
        process.kill()  # asked to end, it would wait for its clients
        process.wait()


@pytest.fixture(scope="module", params=PROXIES)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp(request.param)
    files, port, behind = front.certificate(folder), free_port(), free_port()
    env = {
        "DSTACK_AGENT_RUNTIME": "process",
        "DSTACK_SERVER_LOG_FORMAT": "json",
        "DSTACK_SERVER_TRUSTED_PROXIES": "127.0.0.1",
        "DSTACK_SERVER_CODE_UPLOAD_LIMIT": str(UPLOAD),
        "SSL_CERT_FILE": str(files[0]),
    }
    url = f"https://{HOST}:{port}"
    server = Server(folder / "home", ("--fake-cloud", "--no-local-fleet", "--public-url", url), env)
    server.home.mkdir()
    argv = PROXIES[request.param](folder, port, f"127.0.0.1:{behind}", files)
    try:
        with running(argv, folder), front.trusting(files[0]):
            server.start(port=behind)
            server.url = f"http://127.0.0.1:{behind}"  # in JSON, what follows it isn't a blank
            made = Front(server, url, files[0])
            until("the proxy to answer", lambda: answers(made))
            made.join()
            yield made
    finally:
        server.close()


def answers(made: Front) -> bool:
    with suppress(OSError):
        return made.get("/readyz").status == 200
    return False


def test_a_job_runs_and_bytes_come_and_go(proxied: Front) -> None:
    front.a_job_runs_and_bytes_come_and_go(proxied)


def test_events_come_as_they_happen(proxied: Front) -> None:
    front.events_come_as_they_happen(proxied)


def test_a_large_upload_arrives(proxied: Front) -> None:
    front.a_large_upload_arrives(proxied, UPLOAD - 1024)


def test_real_addresses_are_logged(proxied: Front) -> None:
    front.real_addresses_are_logged(proxied)


def test_nobody_but_the_proxy_is_believed(proxied: Front) -> None:
    where = urlsplit(proxied.server.url)
    direct = http.client.HTTPConnection(where.hostname or "", where.port, PATIENCE, source_address=("127.0.0.8", 0))
    direct.request("GET", "/healthz", headers={"X-Forwarded-For": "7.7.7.7"})
    assert direct.getresponse().status == 200
    until("the line", lambda: "127.0.0.8" in front.clients(proxied.server))
    assert "7.7.7.7" not in front.clients(proxied.server)
