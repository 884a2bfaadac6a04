"""A carrier that is fetched for its SSH server: where it comes from, where it goes, and what is said if it can't."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chalicelib.agent.sessions import carrier_fetching
from chalicelib.agent.sessions.openssh import NoServer


def packed(loader: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        member = tarfile.TarInfo("lib/loader")
        member.size, member.mode = len(loader), 0o755
        tar.addfile(member, io.BytesIO(loader.encode()))
    return out.getvalue()


RUNS, FAILS = packed("#!/bin/sh\n"), packed("#!/bin/sh\nexit 1\n")


class Handler(BaseHTTPRequestHandler):
    answers: list[tuple[int, bytes]]
    calls: list[str]

    def do_GET(self) -> None:
        self.calls.append(self.path)
        status, content = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Location", "/elsewhere?signed=1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class Plane:
    def __init__(self, url: str) -> None:
        self.url, self.answers, self.calls, self.paused = url, Handler.answers, Handler.calls, list[float]()

    def bring(self, data: Path, content: bytes = RUNS) -> str:
        digest = hashlib.sha256(content).hexdigest()
        settings = {name: digest for name in ("DSTACK_CARRIER_X86_SHA256", "DSTACK_CARRIER_ARM_SHA256")}
        environment = {"DSTACK_SERVER": self.url, "HOME": "/proc", **settings}
        return carrier_fetching.bring(str(data), environment, self.paused.append)


@pytest.fixture
def plane() -> Iterator[Plane]:
    Handler.answers, Handler.calls = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Plane(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_it_may_be_stored_elsewhere(plane: Plane, tmp_path: Path) -> None:
    plane.answers[:] = [(302, b""), (200, RUNS)]
    folder = Path(plane.bring(tmp_path))
    assert folder.parent == tmp_path and (folder / "lib/loader").stat().st_mode & 0o777 == 0o755
    assert folder.stat().st_mode & 0o777 == 0o700, "nobody else may change it"
    assert plane.calls[0].startswith("/agent/carrier.tar.gz?sha256=") and plane.calls[1] == "/elsewhere?signed=1"


def test_a_server_that_restarts_is_waited_for(plane: Plane, tmp_path: Path) -> None:
    plane.answers[:] = [(502, b"no"), (200, b"a page"), (200, RUNS)]
    assert plane.bring(tmp_path)
    assert plane.paused == [0, 1, 2]


@pytest.mark.parametrize(
    ("answer", "message"), [((404, b"none"), "HTTP 404 none"), ((200, FAILS), "SHA-256"), ((307, b""), "redirects")]
)
def test_what_goes_wrong_is_said(plane: Plane, tmp_path: Path, answer: tuple[int, bytes], message: str) -> None:
    plane.answers[:] = [answer] * 30
    with pytest.raises(NoServer, match=f"the control plane's can't be fetched: .*{message}"):
        plane.bring(tmp_path)
    assert sum(plane.paused) == 61 and list(tmp_path.iterdir()) == []


def test_a_folder_from_which_nothing_may_be_run_isnt_used(tmp_path: Path) -> None:
    places = (str(tmp_path / "none"), str(tmp_path))
    assert Path(carrier_fetching.unpack(RUNS, places)).parent == tmp_path
    with pytest.raises(NoServer, match=r"no folder can hold and run an SSH server; mount one .*none: .*exit status 1"):
        carrier_fetching.unpack(FAILS, places)
    assert len(list(tmp_path.iterdir())) == 1, "what can't be run is removed"


def test_a_control_plane_without_carriers_has_none_to_give(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="this control plane has no carrier that brings one"):
        carrier_fetching.bring(str(tmp_path), {"DSTACK_SERVER": "http://plane"})
