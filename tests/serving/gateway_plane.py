"""The control plane as a gateway's control program meets it, over loopback HTTP, and the program as a process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from chalicelib.domain.serving import Served
from tests.harness.ports import free_port
from tests.serving.door import ROOT
from tests.serving.nginx_door import DOMAIN, HOLD

CREDENTIAL = "of-this-machine"


class FakePlane:
    """It says what it was told to say, and remembers what it heard. One condition guards it."""

    def __init__(self, port: int = 0) -> None:
        self.news = threading.Condition()
        self.word: dict[str, Any] = {"version": "1", "services": []}
        self.members: dict[str, str] = {}  # token → project
        self.calls: list[str] = []  # the hashes of tokens that were asked about
        self.reports: list[dict[str, Any]] = []
        self.pin = ""  # by which the program says that agents know its gateway
        self.ordered: Callable[[dict[str, Any]], None] = lambda order: None  # what the replicas' agents do
        self.gone = self.away = False
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        with self.news:
            self.away = True  # for connections that are kept, too
            self.news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def say(self, *services: Served, **more: Any) -> None:
        services_json = [
            {**each.model_dump(mode="json"), "hosts": [f"{each.run_name}.{DOMAIN}"], "hold": HOLD} for each in services
        ]
        self.configure({"services": services_json, **more})

    def configure(self, configuration: dict[str, Any]) -> None:
        with self.news:
            self.word = {"version": str(int(self.word["version"]) + 1), **configuration}
            self.news.notify_all()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        with self.news:
            if self.gone:
                return 410, {"detail": "no such gateway"}
            if (method, url.path) == ("GET", "/agent/gateway"):
                given = parse_qs(url.query, keep_blank_values=True)
                new = self.news.wait_for(
                    lambda: self.gone or self.away or self.word["version"] != given["since"][0], timeout=5
                )
                return (410, {}) if self.gone else (200, self.word) if new else (204, None)
            if url.path == "/agent/gateway/traffic":
                self.reports += body["reports"]
                return 204, None
            if url.path == "/agent/gateway/streams":
                self.pin = body["pin"]
                for order in body["streams"]:
                    self.ordered(order)
                return 204, None
            if url.path == "/agent/gateway/rights":
                known = {hashlib.sha256(token.encode()).hexdigest(): token for token in self.members}
                self.calls.append(body["token_hash"])
                return 200, {"allowed": self.members.get(known.get(body["token_hash"], "")) == body["project"]}
        return 404, {"detail": path}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def _reply(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size) or "null")
                status, reply = plane.answer(self.command, self.path, body)
                if plane.away:
                    self.close_connection = True
                    return
                if self.headers["Authorization"] != f"Bearer {CREDENTIAL}":
                    status, reply = 401, {}
                data = b"" if status == 204 else json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _reply

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class Program:
    """`agent gateway` as a process, with nginx as the child that outlives it."""

    def __init__(self, folder: Path, server: str, user: str = "root", tls: bool = False) -> None:
        self.folder, self.port = folder / "gateway", free_port()
        places = ["--https", f"127.0.0.1:{free_port()}"] if tls else []
        self.secure = f"https://{places[1]}" if tls else ""
        (folder / "agent").mkdir()
        (folder / "agent" / "server").write_text(server)
        (folder / "agent" / "credential").write_text(CREDENTIAL)
        command = [sys.executable, "-m", "chalicelib.agent", "gateway", "--data", str(folder / "agent")]
        command += ["--folder", str(self.folder), "--http", f"127.0.0.1:{self.port}", "--workers", "1", *places]
        self._command = [*command, "--user", user] if os.geteuid() == 0 else command
        self._log = folder / "log"
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        return self._log.read_text()

    def nginx(self) -> int:
        try:
            return int((self.folder / "nginx.pid").read_text())
        except FileNotFoundError:
            return 0

    def stop(self) -> None:
        self.kill()
        if pid := self.nginx():
            os.kill(pid, 15)
