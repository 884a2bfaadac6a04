"""Fetches the control plane's carrier for a container whose image has a Python, but no SSH server."""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import time
from typing import Callable, Mapping, Sequence
from urllib.parse import urljoin, urlsplit

from ..kernel import interpreter, route
from ..kernel.log import log
from .openssh import NoServer

SETTINGS = {"aarch64": "DSTACK_CARRIER_ARM_SHA256", "arm64": "DSTACK_CARRIER_ARM_SHA256"}  # by processor
OTHERWISE = "DSTACK_CARRIER_X86_SHA256"
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds between attempts
SECONDS = 60.0  # of silence
REDIRECTS_MOST = 3  # a control plane may store large files elsewhere
BYTES_MOST = 64 << 20


def bring(data: str, environment: Mapping[str, str] = os.environ, pause: Callable[[float], None] = time.sleep) -> str:
    """Fetch and unpack it. Returns its folder. Raises NoServer. `data`: the agent's folder."""
    digest = environment.get(SETTINGS.get(platform.machine(), OTHERWISE), "")
    if not digest:
        raise NoServer(
            "attaching isn't possible: this image has no sshd, and this control plane has no carrier that brings one; "
            "install the image's OpenSSH server, or ask the control plane's admin for carriers"
        )
    url = "%s/agent/carrier.tar.gz?sha256=%s" % (environment.get("DSTACK_SERVER", "").rstrip("/"), digest)
    home = environment.get("HOME") or "/"
    return unpack(_fetch(url, digest, pause), (data, "/tmp", home, "/dev/shm"))


def _fetch(url: str, digest: str, pause: Callable[[float], None]) -> bytes:
    problem = ""
    for seconds in (0.0, *PAUSES):
        pause(seconds)
        try:
            content = get(url)
        except (http.client.HTTPException, OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
        else:
            if hashlib.sha256(content).hexdigest() == digest:
                return content
            problem = "its SHA-256 is an unexpected one"
        log("fetching an SSH server: %s: %s" % (url, problem))
    raise NoServer(
        "attaching isn't possible: this image has no sshd, and the control plane's can't be fetched: %s" % problem
    )


def get(url: str) -> bytes:
    """The content at a URL. Raises OSError, HTTPException, or ValueError for a malformed address."""
    for _ in range(REDIRECTS_MOST):
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port)
        connection.sock = route.connect(url, "", SECONDS)
        try:
            connection.request("GET", "%s?%s" % (parts.path, parts.query), headers={"Accept": "*/*"})
            response = connection.getresponse()
            content = response.read(BYTES_MOST)
        finally:
            connection.close()
        if response.status == 200:
            return content
        if response.status not in (301, 302, 303, 307, 308):
            raise OSError("HTTP %d %s" % (response.status, content[:300].decode("utf-8", "replace")))
        url = urljoin(url, response.headers.get("Location") or "")
    raise OSError("more than %d redirects" % REDIRECTS_MOST)


def unpack(content: bytes, parents: Sequence[str]) -> str:
    """Unpack a carrier into a new folder below the first of `parents` where it can be written and run."""
    problems = []
    for parent in parents:
        folder = ""
        try:
            folder = tempfile.mkdtemp(prefix="dstack-carrier-", dir=parent)
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
                tar.extractall(folder)
            subprocess.run(
                [os.path.join(folder, interpreter.LOADER), "--version"], check=True, stdout=subprocess.DEVNULL
            )
            return folder
        except (OSError, subprocess.CalledProcessError) as problem:
            problems.append("%s: %s" % (parent, problem))
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
    raise NoServer(
        "attaching isn't possible: no folder can hold and run an SSH server; mount one at /dstack, without noexec (%s)"
        % "; ".join(problems)
    )
