"""A service whose replicas are containers, and what its callers see while these come and go."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError

from tests.harness.server import PATIENCE, Server, until
from tests.runtime.live import logs_of, run_of

NAME = "site"
# Each writes its response at once, so that no kill cuts one in two. `held` never answers in the job that its query has.
SCRIPT = """cat >www/cgi-bin/{name} <<'END'
#!/bin/sh
{body}printf "HTTP/1.0 200 OK\\r\\nContent-Length: 1\\r\\n\\r\\n$VERSION"
END"""
HOLD = '[ "$QUERY_STRING" != "$DSTACK_JOB_ID" ] || { echo held >&2; exec sleep 1000; }\n'
COMMANDS = (
    "mkdir -p /tmp/www/cgi-bin",
    "cd /tmp",
    SCRIPT.format(name="now", body=""),
    SCRIPT.format(name="held", body=HOLD),
    "chmod +x www/cgi-bin/*",
    "exec httpd -f -p 127.0.0.1:8000 -h www",
)


class Site:
    """The service, and what its callers see."""

    def __init__(self, server: Server, name: str = NAME, **configuration: Any) -> None:
        self.server, self.name, self.configuration = server, name, configuration
        self.answers: list[tuple[int, str]] = []  # of constant requests: the status and the version

    def apply(self, version: str, replicas: int) -> None:
        spec = {
            "type": "service",
            "name": self.name,
            "port": 8000,
            "auth": False,
            "probes": [{"type": "http", "url": "/cgi-bin/now", "interval": 1}],
            "retry": {"on_events": ["error", "interruption"]},
            "env": {"VERSION": version},
            "replicas": replicas,
            "commands": COMMANDS,
            **self.configuration,
        }
        path = self.server.home / f"{self.name}.dstack.yml"
        path.write_text(json.dumps(spec))
        self.server.cli("apply", "-y", "-d", "-f", str(path))

    def ask(self, path: str = "now") -> tuple[int, str, str]:
        """The status, the version and the job that answered."""
        return self.get(f"/cgi-bin/{path}")

    def get(self, path: str) -> tuple[int, str, str]:
        assert self.server.opener is not None
        try:
            url = f"{self.server.url}/proxy/services/main/{self.name}{path}"
            with self.server.opener.open(url, timeout=PATIENCE) as reply:
                return reply.status, reply.read().decode(), reply.headers["X-Replica"]
        except HTTPError as error:
            return error.code, error.read().decode(), ""

    def replicas(self, version: str, count: int) -> set[str]:
        """Waits until so many jobs of this version answer, and no others do."""

        def found() -> set[str]:
            answers = [self.ask() for _ in range(3 * count)]
            jobs = {job for _, _, job in answers}
            return jobs if {seen for _, seen, _ in answers} == {version} and len(jobs) == count else set()

        # One more may have to be bought, once the agent of the last has been silent for long enough.
        jobs: set[str] = until(f"{count} replicas of version {version}", found, seconds=2 * PATIENCE, every=1.0)
        return jobs

    @contextmanager
    def constant_requests(self, callers: int) -> Iterator[None]:
        done = threading.Event()

        def call() -> None:
            while not done.wait(0.1):  # so that the machine has time for all else
                self.answers.append(self.ask()[:2])

        with ThreadPoolExecutor(callers) as pool:
            going = [pool.submit(call) for _ in range(callers)]
            try:
                yield
            finally:
                done.set()
            for each in going:
                each.result()

    def machine_of(self, job: str) -> str:
        """The provider's name of its container."""
        submissions = [each for one in run_of(self.server, self.name)["jobs"] for each in one["job_submissions"]]
        (name,) = (each["job_provisioning_data"]["hostname"] for each in submissions if each["id"] == job)
        return str(name)

    def held_at(self, job: str, pool: ThreadPoolExecutor) -> list[Future[tuple[int, str, str]]]:
        """Requests of which at least one is under way in this job."""
        sent: list[Future[tuple[int, str, str]]] = []

        def held() -> bool:
            sent.append(pool.submit(self.ask, f"held?{job}"))
            return any("held" in log for log in logs_of(self.server, self.name))

        until("a request to be held", held, every=1.0)  # few, as the other replica has to answer all of them
        return sent


def no_request_fails(site: Site, kill: Callable[[str], None], callers: int = 1) -> None:
    """While a replica is added, one is killed, and one of the next version takes the place of both. `kill` ends a
    container, by its provider's name for it."""
    site.apply("1", 1)
    site.replicas("1", 1)
    with site.constant_requests(callers):
        site.apply("1", 2)
        victim = kill_one_of_two(site, kill)
    assert victim not in site.replicas("1", 2), "its agent was silent, and `retry` has bought another container"
    with site.constant_requests(callers):
        site.apply("2", 1)
        site.replicas("2", 1)
    assert {status for status, _ in site.answers} == {200}
    assert {version for _, version in site.answers} == {"1", "2"}


def kill_one_of_two(site: Site, kill: Callable[[str], None]) -> str:
    """A replica of version 1, whose requests under way the other one answers."""
    victim, survivor = sorted(site.replicas("1", 2))
    with ThreadPoolExecutor(64) as pool:
        held = site.held_at(victim, pool)
        kill(site.machine_of(victim))
        assert {each.result() for each in held} == {(200, "1", survivor)}
    return victim
