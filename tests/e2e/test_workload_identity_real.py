"""The guide to signing on from CI: a CI that signs tokens as GitHub does, our command line, and a real server."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.harness.server import PATIENCE, ROOT, Server, until
from tests.scenarios.guides import WORKLOADS

SECRET = "the-jobs-own"
TASK = "type: task\nname: train\ncommands: [echo hello]\nresources: {cpu: 1.., memory: 0.1GB.., disk: 1GB..}\n"


class Ci(ThreadingHTTPServer):
    """It publishes its keys, and makes a token for the job that asks, about the job's branch."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Pages)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = RSAKey.generate_key(2048, {"kid": "ci"})
        self.branch = "main"

    def token(self, audience: str) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": audience, "sub": f"repo:acme/train:ref:refs/heads/{self.branch}"}
        times = {"iat": now, "nbf": now, "exp": now + 300}
        return jwt.encode({"alg": "RS256", "kid": "ci"}, {**claims, **times, "jti": str(time.time_ns())}, self.key)


class _Pages(BaseHTTPRequestHandler):
    server: Ci

    def do_GET(self) -> None:
        found = urlsplit(self.path)
        query = parse_qs(found.query)
        if found.path == "/job" and self.headers["Authorization"] == f"Bearer {SECRET}":
            self._send({"value": self.server.token(query["audience"][0])})
        elif found.path == "/.well-known/openid-configuration":
            self._send({"issuer": self.server.url, "jwks_uri": f"{self.server.url}/keys"})
        elif found.path == "/keys":
            self._send(KeySet([self.server.key]).as_dict(private=False))
        else:
            self.send_error(404)

    def _send(self, page: Any) -> None:
        body = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def example(name: str) -> Any:
    (found,) = re.findall(rf"```yaml {re.escape(name)}\n(.*?)```", WORKLOADS.read_text(), re.DOTALL)
    return yaml.load(found, yaml.BaseLoader)


@dataclass
class Job:
    """A job of the CI, with a home of its own."""

    ci: Ci
    server: Server
    home: Path

    def run(self, *command: str) -> tuple[int, str]:
        env = {**self.server.environment(), "HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        env |= {"ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.ci.url}/job?api-version=2.0"}
        env |= {"ACTIONS_ID_TOKEN_REQUEST_TOKEN": SECRET}
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *command],
            cwd=self.home,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, " ".join(done.stdout.split())

    def signs_on(self, *args: str) -> tuple[int, str]:
        """It tries again where the server couldn't read the CI's keys in time: on a busy machine they may be late."""

        def attempt() -> tuple[int, str] | None:
            status, said = self.run("login", "--oidc", *args)
            late = status and ("can't be read" in said or "a moment ago" in said)
            return None if late else (status, said)

        found: tuple[int, str] = until("the CI's keys to be read", attempt, seconds=5 * PATIENCE, every=2)
        return found

    def step(self, line: str) -> tuple[int, str]:
        """A line of the workflow, at this server, which has the audience of the guide."""
        words = shlex.split(line.replace("https://gpu.example.com", self.server.url))
        if "--oidc" not in words:
            return self.run(*words[1:])
        return self.signs_on(*(word for word in words[2:] if word != "--oidc"), "--audience", "https://gpu.example.com")


@pytest.fixture(scope="module")
def ci() -> Iterator[Ci]:
    one = Ci()
    thread = threading.Thread(target=one.serve_forever)
    thread.start()
    try:
        yield one
    finally:
        one.shutdown()
        thread.join()
        one.server_close()


@pytest.fixture(scope="module")
def server(ci: Ci, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("workloads")
    (home / "server").mkdir(mode=0o700)
    config = example("config.yml")
    config["workloads"][0]["issuer"] = ci.url
    (home / "server" / "config.yml").write_text(json.dumps(config))
    one = Server(home, flags=("--no-local-fleet", "--fake-cloud"))
    try:
        one.start()
        one.call("/api/users/create", {"username": "ci", "global_role": "user"})
        one.call("/api/projects/main/add_members", {"members": [{"username": "ci", "project_role": "user"}]})
        yield one
    finally:
        one.close()


@pytest.fixture
def job(ci: Ci, server: Server, tmp_path: Path) -> Job:
    ci.branch = "main"
    (tmp_path / "train.dstack.yml").write_text(TASK)
    return Job(ci, server, tmp_path)


def test_the_workflow_of_the_guide_signs_on_and_submits(job: Job, server: Server) -> None:
    workflow = example("train.yml")
    assert workflow["permissions"]["id-token"] == "write" and workflow["on"]["push"]["branches"] == ["main"]
    steps = [step["run"] for step in workflow["jobs"]["train"]["steps"] if "run" in step]
    (login, apply) = [line for line in steps if line.startswith("dstack ")]
    status, said = job.step(login)
    assert status == 0 and "You are ci at" in said and "may read, run until" in said, said
    status, said = job.step(apply)
    assert status == 0, said
    assert server.call("/api/project/main/runs/get", {"run_name": "train"})["user"] == "ci"
    events = server.call("/api/events/list", {"include_target_types": ["run"]})
    assert any(event["actor_user"] == "ci" and event["actor_token"].startswith("train/") for event in events), events
    status, said = job.run("secret", "list")
    assert status == 1 and "lacks the verb" in said


def test_another_branch_another_audience_and_no_job_are_refused(job: Job) -> None:
    status, said = job.signs_on("--url", job.server.url)
    assert status == 1 and "not for this control plane" in said, said
    job.ci.branch = "feature"
    status, said = job.step("dstack login --url https://gpu.example.com --oidc")
    assert status == 1 and "No rule of this control plane is for this program" in said, said
    assert not (job.home / ".dstack" / "config.yml").exists()


def test_the_gitlab_job_of_the_guide_puts_its_token_where_it_is_looked_for() -> None:
    train = example("gitlab-ci.yml")["train"]
    assert train["id_tokens"] == {"DSTACK_ID_TOKEN": {"aud": "https://gpu.example.com"}}
    assert train["script"][0] == "dstack login --url https://gpu.example.com --oidc"
