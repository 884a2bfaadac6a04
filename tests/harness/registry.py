"""A registry with one image of any size, served to an engine in the engine's own network namespace.

    python -m tests.harness.registry MIB [USER:PASSWORD]   # prints its port; the image is 127.0.0.1:PORT/big:1

The image has one layer of random bytes, which can't be compressed. With a login it is a private one.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LISTS = "application/vnd.docker.distribution.manifest.v2+json"
PARTS = {
    "config": "application/vnd.docker.container.image.v1+json",
    "layer": "application/vnd.docker.image.rootfs.diff.tar.gzip",
}


def blobs_of(mib: int) -> dict[str, tuple[str, bytes]]:
    """What the registry has, by digest, with its media type; the manifest is called `1` too."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as packed:
        member = tarfile.TarInfo("big")
        member.size = mib << 20
        packed.addfile(member, io.BytesIO(os.urandom(member.size)))
    layer = gzip.compress(tar.getvalue(), 0)
    root = {"type": "layers", "diff_ids": [digest(tar.getvalue())]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": root}).encode()
    described = {
        name: {"mediaType": PARTS[name], "size": len(data), "digest": digest(data)}
        for name, data in (("config", config), ("layer", layer))
    }
    listed = {"schemaVersion": 2, "mediaType": LISTS, "config": described["config"], "layers": [described["layer"]]}
    manifest = json.dumps(listed).encode()
    parts = ((PARTS["config"], config), (PARTS["layer"], layer), (LISTS, manifest))
    return {digest(data): (kind, data) for kind, data in parts} | {"1": (LISTS, manifest)}


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    blobs: dict[str, tuple[str, bytes]]
    login: str = ""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if self.login and self.headers.get("Authorization") != f"Basic {b64encode(self.login.encode()).decode()}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="private"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = self.path.rpartition("/")[2]
        kind, data = ("text/plain", b"") if self.path == "/v2/" else self.blobs.get(name, ("", b""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", digest(data))
        self.end_headers()
        if self.command == "GET":
            with contextlib.suppress(ConnectionError):  # the engine has heard enough
                self.wfile.write(data)

    do_HEAD = do_GET


@contextlib.contextmanager
def beside(namespace: str, mib: int, login: str = "") -> Iterator[str]:
    """The name of the image, which an engine in that namespace can pull."""
    argv = ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, "-m", "tests.harness.registry", str(mib), login]
    root = Path(__file__).parents[2]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"127.0.0.1:{int(server.stdout.readline())}/big:1"
        finally:
            server.kill()


if __name__ == "__main__":
    Handler.blobs = blobs_of(int(sys.argv[1]))
    Handler.login = "".join(sys.argv[2:])
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
