"""Debian's registry of images, on a port of this machine's loopback, for those with a login or for everybody."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bcrypt
import orjson

from chalicelib.backends.spi import RegistryLogin
from tests.harness.debian import NotHere, install
from tests.harness.ports import free_port

READY_SECONDS = 60.0
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"


class ImageRegistry:
    def __init__(self, host: str, login: RegistryLogin | None, opener: urllib.request.OpenerDirector) -> None:
        self.host, self._opener = host, opener
        text = f"{login.username}:{login.password}" if login else ""
        self._headers = {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"} if login else {}

    def push(self, name: str, **config: Any) -> str:
        """An image without layers. Returns its name here."""
        repository, _, tag = name.partition(":")
        content = orjson.dumps({"architecture": "amd64", "os": "linux", "config": config, "rootfs": {"type": "layers"}})
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        place = self._call("POST", f"/v2/{repository}/blobs/uploads/")["Location"]
        self._call("PUT", f"{place}&digest={digest}", content, "application/octet-stream")
        described = {"mediaType": CONFIG, "size": len(content), "digest": digest}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}
        self._call("PUT", f"/v2/{repository}/manifests/{tag}", orjson.dumps(manifest), MANIFEST)
        return f"{self.host}/{name}"

    def ready(self) -> bool:
        try:
            self._call("GET", "/v2/")
        except urllib.error.HTTPError:
            raise
        except OSError:
            return False
        return True

    def _call(self, method: str, path: str, data: bytes | None = None, kind: str = "") -> Any:
        url = path if path.startswith("http") else f"http://{self.host}{path}"
        headers = {**self._headers, **({"Content-Type": kind} if kind else {})}
        with self._opener.open(urllib.request.Request(url, data, headers, method=method), timeout=120) as answer:
            return answer.headers


@contextlib.contextmanager
def image_registry(
    folder: Path,
    login: RegistryLogin | None = None,
    prefix: Sequence[str] = (),
    opener: urllib.request.OpenerDirector | None = None,
) -> Iterator[ImageRegistry]:
    """`prefix`, `opener`: of another network. Raises NotHere."""
    program = shutil.which("docker-registry")
    if program is None:
        install("docker-registry")
        program = shutil.which("docker-registry") or "docker-registry"
    host = f"127.0.0.1:{free_port()}"
    config: dict[str, Any] = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": host},
        "log": {"level": "error", "accesslog": {"disabled": True}},
    }
    if login is not None:
        users = folder / "users"
        users.write_text(f"{login.username}:{bcrypt.hashpw(login.password.encode(), bcrypt.gensalt(4)).decode()}\n")
        config["auth"] = {"htpasswd": {"realm": "private", "path": str(users)}}
    (folder / "registry.yml").write_bytes(orjson.dumps(config))
    with (folder / "registry.log").open("w") as log:
        argv = [*prefix, program, "serve", str(folder / "registry.yml")]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        registry = ImageRegistry(host, login, opener or urllib.request.build_opener())
        until = time.monotonic() + READY_SECONDS
        while not registry.ready():
            if process.poll() is not None or time.monotonic() > until:
                raise NotHere(f"the registry doesn't start: {(folder / 'registry.log').read_text()[-400:]}")
            time.sleep(0.05)
        yield registry
    finally:
        process.kill()
        process.wait()
