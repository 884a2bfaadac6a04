"""What a host's jobs go through when it restarts, its engine stops, or its agent is killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.hosts.host import Host
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.lab import Lab, lab
from tests.harness.server import until

# It would look done: it handles the signal that ends it, and leaves with 0.
POLITE = "trap 'echo asked to stop; exit 0' TERM; echo up; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), workers(1)) as one:
        one.apply(one.fleet("lab", one.site.workers))
        yield one
        one.delete("lab")


def run_of(site: Lab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = site.server.call("/api/project/main/runs/get", {"run_name": name})
    return found


def started(site: Lab, name: str, command: str) -> Host:
    site.apply(site.task(name, command, "lab"), "-d")
    until("its first line", lambda: "up" in site.server.cli("logs", name, check=False))
    return site.site.workers[0]


def ended(site: Lab, name: str) -> dict[str, Any]:
    until(f"{name} to end", lambda: run_of(site, name)["status"] in ("failed", "done", "terminated"))
    submission: dict[str, Any] = run_of(site, name)["jobs"][0]["job_submissions"][-1]
    return submission


def test_a_job_ends_with_its_machine(site: Lab) -> None:
    host = started(site, "restarted", POLITE)
    host.reboot()
    job = ended(site, "restarted")
    assert (job["status"], job["termination_reason"]) == ("failed", "executor_error")
    assert "the machine restarted; the task ended with it" in job["termination_reason_message"]
    until("the host to be free", lambda: site.statuses("lab") == {host.address: "idle"})
    assert "again done" in site.apply(site.task("again", "echo again", "lab"))


def test_a_job_ends_with_its_engine(site: Lab) -> None:
    host = started(site, "stopped", POLITE)
    host.systemctl("restart", "docker")
    job = ended(site, "stopped")
    assert (job["status"], job["termination_reason"]) == ("failed", "executor_error")
    assert "stopped from outside, by the Docker engine" in job["termination_reason_message"]
    assert "asked to stop" in site.server.cli("logs", "stopped"), "its last words are kept"


def test_a_job_outlives_its_agent(site: Lab) -> None:
    script = "echo up; i=0; while [ ! -e /tmp/go ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo end $i"
    host = started(site, "carried", script)
    before = host.systemctl("show", "--property=MainPID", "--value", "dstack-agent")
    host.systemctl("kill", "--kill-whom=main", "--signal=KILL", "dstack-agent")
    until(
        "another agent",
        lambda: host.systemctl("show", "--property=MainPID", "--value", "dstack-agent") not in ("0", before),
    )
    (name,) = host.docker("ps", "--quiet", "--filter", "label=dstack.task").stdout.split()
    host.docker("exec", name, "/bin/sh", "-c", ": > /tmp/go")
    assert ended(site, "carried")["exit_status"] == 0
    lines = site.server.cli("logs", "carried").split("\n")
    count = int(next(line for line in lines if line.startswith("end ")).split()[1])
    assert [line for line in lines if line.startswith("line ")] == [f"line {n}" for n in range(1, count + 1)]
