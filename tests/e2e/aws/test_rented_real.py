"""A machine that is rented from AWS, from the order to the end: what EC2 does with its user data, a host does here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.backends.aws.lines import KEY, SECRET
from tests.e2e.hosts.host import Host
from tests.e2e.hosts.network import CONTROL
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.onprem.lab import Lab
from tests.harness.images import busybox_image
from tests.harness.server import ROOT, until

PORT, AWS = 3000, 4566
CONFIG = {
    "projects": [
        {
            "name": "main",
            "backends": [
                {
                    "type": "aws",
                    "creds": {"type": "access_key", "access_key": KEY, "secret_key": SECRET},
                    "regions": ["us-east-1"],
                }
            ],
        }
    ]
}
METADATA = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        self.say(200, b"token")
    def do_GET(self):
        notice = "/run/spot-notice"
        there = os.path.exists(notice) and self.headers["X-aws-ec2-metadata-token"] == "token"
        self.say(200, open(notice, "rb").read()) if there else self.say(404, b"")
    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("169.254.169.254", 80), Handler).serve_forever()
"""


@dataclass
class Rental:
    lab: Lab

    @property
    def host(self) -> Host:
        return self.lab.site.workers[0]

    def aws(self, path: str) -> Any:
        with self.lab.site.control.opener().open(f"http://127.0.0.1:{AWS}/-/{path}", timeout=30) as reply:
            return json.loads(reply.read())

    def running(self) -> dict[str, Any] | None:
        return next((each for each in self.aws("machines") if not each["ended"]), None)

    def boot(self) -> dict[str, Any]:
        """As cloud-init does once, as root, on a disk that is new."""
        machine: dict[str, Any] = until("a machine to be launched", self.running)
        self.host.run("rm", "-rf", "/var/lib/dstack")
        self.host.write("/var/lib/cloud/user-data", machine["user_data"], 0o700)
        self.host.run("systemd-run", f"--unit=cloud-{machine['id']}", "/var/lib/cloud/user-data")
        return machine

    def over(self) -> bool:
        return not self.aws("owned") and not self.lab.instances("rented")

    def fleet(self, **more: Any) -> None:
        self.lab.apply(
            {
                "type": "fleet",
                "name": "rented",
                "nodes": "0..1",
                "backends": ["aws"],
                "instance_types": ["m7i.large"],
                "resources": {"cpu": "1..", "memory": "0.1GB..", "disk": "1MB.."},
                "idle_duration": "1s",
                **more,
            }
        )

    def run(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.lab.server.call("/api/project/main/runs/get", {"run_name": name})
        return found


@contextmanager
def account_at(site: Site) -> Iterator[None]:
    """AWS, where the server can call it."""
    command = [*site.control.prefix, sys.executable, "-m", "tests.e2e.aws.rented", str(AWS)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


@pytest.fixture(scope="module")
def rental(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rental]:
    folder = tmp_path_factory.mktemp("rented")
    (folder / "server").mkdir(mode=0o700)
    (folder / "server" / "config.yml").write_text(json.dumps(CONFIG))
    with or_skipped([HostSpec("i-1")], workers_reach_plane=True) as site, account_at(site):
        site.workers[0].import_image(busybox_image())
        flags = ("--no-local-fleet", "--host", CONTROL, "--public-url", f"http://{CONTROL}:{PORT}")
        server = site.server(folder, flags=flags, env={"AWS_ENDPOINT_URL": f"http://127.0.0.1:{AWS}"})
        try:
            server.start(port=PORT)
            yield Rental(Lab(site, server))
        finally:
            server.close()


def test_a_machine_is_rented_works_and_is_given_back(rental: Rental) -> None:
    lab = rental.lab
    rental.fleet()
    lab.apply(lab.task("hello", "echo hello from $(hostname)", "rented"), "-d")
    machine = rental.boot()
    assert "--notices" not in machine["user_data"]
    until("the run to be done", lambda: rental.run("hello")["status"] == "done")
    assert "hello from" in lab.server.cli("logs", "hello")
    until("the machine to be given back", rental.over)
    assert "dstack-token" not in rental.host.run("ls", "-R", "/var/lib/dstack", check=False).stdout


def test_a_spot_machine_hears_its_notice_and_its_job_is_tried_again(rental: Rental) -> None:
    lab, host = rental.lab, rental.host
    host.run("ip", "address", "replace", "169.254.169.254/32", "dev", "lo")
    host.write("/usr/local/bin/metadata", METADATA)
    host.run("systemd-run", "--unit=metadata", "python3", "/usr/local/bin/metadata")
    rental.fleet(spot_policy="spot")
    retry = {"on_events": ["interruption"], "duration": "1h"}
    task = lab.task("long", "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.1; done", "rented")
    lab.apply({**task, "spot_policy": "spot", "retry": retry}, "-d")
    machine = rental.boot()
    assert "--notices ec2" in machine["user_data"]
    until("the job to run", lambda: "up" in lab.server.cli("logs", "long"))
    host.write("/run/spot-notice", '{"action": "terminate", "time": "2099-01-01T00:00:00Z"}')
    until("the job to be told", lambda: "told" in lab.server.cli("logs", "long"))
    first = until("the first submission to end", lambda: ended(rental.run("long")))
    assert first["termination_reason"] == "interrupted_by_no_capacity"
    until("another machine", lambda: (now := rental.running()) is not None and now["id"] != machine["id"])
    lab.server.cli("stop", "long", "-y")
    lab.delete("rented")
    assert rental.aws("owned") == []


def ended(run: dict[str, Any]) -> dict[str, Any] | None:
    submissions = run["jobs"][0]["job_submissions"]
    return next((each for each in submissions if each["termination_reason"]), None)
