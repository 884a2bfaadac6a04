"""ministack, an emulator of AWS in pure Python, started and stopped for tests.

It pins its own botocore, so it lives in `.venvs/ministack`, made from the lock file beside this one by `install()`, or
by the Makefile. It listens on 127.0.0.1 alone, keeps its state in a folder that goes when it does, and is stopped by
its process group. An environment that can't be made is a skip with the reason (under REQUIRE_REAL a failure).
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.ports import free_port

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venvs" / "ministack"
SITE = Path(__file__).with_name("functions")  # what all its Pythons begin with
LOCK = Path(__file__).with_name("ministack.lock")
REGION = "us-east-1"
APP = "ministack.app:app"
SERVES = (  # its own server takes four fifths of a call's time
    *("--host", "127.0.0.1", "--http", "httptools", "--loop", "uvloop", "--ws", "none"),
    *("--timeout-keep-alive", "75", "--no-server-header", "--no-date-header", "--no-access-log"),
    *("--log-level", "warning"),
)
_PATIENCE = 120.0  # seconds to wait for the first answer: two busy cores are slow


class Unavailable(Exception):
    """The emulator can't be had here; the text says why."""


@dataclass(frozen=True)
class Emulator:
    url: str
    process: subprocess.Popen[bytes]
    state: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to take the emulator for AWS."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str) -> Any:
        import boto3

        session = boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)
        return session.client(service, endpoint_url=self.url)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # it and its children: nothing of theirs is kept
        self.process.wait()
        shutil.rmtree(self.state, ignore_errors=True)


@functools.cache
def share_descriptions() -> None:
    """Has all sessions of this process read only once what botocore knows of each service: half a second of CPU."""
    import botocore
    from botocore.loaders import create_loader

    loader = create_loader()
    botocore.register_initializer(lambda session: session.register_component("data_loader", loader))


def install() -> None:
    """Makes `.venvs/ministack` unless it is there. Raises Unavailable."""
    done = VENV / ".installed"
    if done.exists() and done.stat().st_mtime >= LOCK.stat().st_mtime:
        return
    making = subprocess.run(
        [sys.executable, ROOT / ".ci" / "venv.py", VENV, LOCK], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if making.returncode != 0:
        raise Unavailable(f"{VENV.relative_to(ROOT)} can't be made: {(making.stdout + making.stderr)[-500:].strip()}")
    done.touch()


def start(environment: Mapping[str, str] | None = None) -> Emulator:
    """Raises Unavailable with the end of its log if it doesn't come up."""
    install()
    trouble = ""
    for _ in range(3):  # between the choice of a port and listening there somebody else may take it
        emulator = _started(environment or {})
        trouble = _wait(emulator)
        if not trouble:
            return emulator
        emulator.stop()
        if "in use" not in trouble:
            break
    raise Unavailable(f"ministack doesn't come up: {trouble}")


def _wait(emulator: Emulator) -> str:
    """Empty once it answers; else the end of its log."""
    deadline = time.monotonic() + _PATIENCE
    while emulator.process.poll() is None and time.monotonic() < deadline:
        if _answers(emulator.url):
            time.sleep(0.1)
            if emulator.process.poll() is None:  # or it was somebody else's that answered
                return ""
        time.sleep(0.05)
    return (emulator.state / "log").read_text(errors="replace")[-800:] or "it says nothing"


def _started(environment: Mapping[str, str]) -> Emulator:
    state = Path(tempfile.mkdtemp(prefix="ministack-"))
    (state / "compiled").mkdir()
    port = free_port()
    settings = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(state),
        "TMPDIR": str(state),
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "STATE_DIR": str(state / "state"),
        "S3_DATA_DIR": str(state / "s3"),
        "MINISTACK_REGION": REGION,
        "LOG_LEVEL": "WARNING",
        "PYTHONPATH": str(SITE),
        "COMPILED_FUNCTIONS": str(state / "compiled"),
        **environment,
    }
    with (state / "log").open("wb") as log:
        process = subprocess.Popen(
            [VENV / "bin" / "uvicorn", *SERVES, "--port", str(port), APP],
            env=settings,
            cwd=state,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return Emulator(f"http://127.0.0.1:{port}", process, state)


@contextlib.contextmanager
def running(environment: Mapping[str, str] | None = None) -> Iterator[Emulator]:
    """For a session-scoped fixture: an emulator, or a skip that says why not."""
    share_descriptions()
    try:
        emulator = start(environment)
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        yield emulator
    finally:
        emulator.stop()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_ministack/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    install()
