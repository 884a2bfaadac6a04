"""A task in a container, through the whole plane: image, python version, user, exit status, logs, stop, and kill -9."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measure import submit, task, wait_local_host
from tests.harness.docker import DockerEngine
from tests.harness.images import BUSYBOX, PYTHON
from tests.harness.server import Server, until
from tests.runtime.test_durability_real import LINES, agent_pid, expected, log_of, run_of, wait_for


@pytest.fixture(scope="module")
def server(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {
        "DSTACK_AGENT_RUNTIME": "docker",
        "DOCKER_HOST": f"unix://{docker_engine.socket}",
        "DSTACK_DOCKER_BASE_IMAGE": PYTHON,
    }
    one = Server(tmp_path_factory.mktemp("docker") / "home", env=env)
    one.home.mkdir()
    try:
        wait_local_host(one.start())
        yield one
    finally:
        one.close()


def test_the_default_image_runs_a_task_and_its_streams_arrive_in_order(server: Server) -> None:
    submit(server, task("inside", 'echo out; echo err >&2; "$DSTACK_VENV_DIR/bin/python3" -c "print(6*7)"'))
    run = wait_for(server, "inside", "done", "failed")
    assert run["status"] == "done", log_of(server, "inside")
    assert log_of(server, "inside").splitlines() == ["out", "err", "42"]


def test_a_named_image_user_working_dir_and_environment(server: Server) -> None:
    more = {
        "image": PYTHON,
        "shell": "bash",
        "user": "1000:1000",
        "working_dir": "/tmp",
        "env": {"GREETING": "hi there"},
    }
    submit(server, task("named", "python3 -c 'import os; print(os.getuid())'; pwd; echo $GREETING", **more))
    run = wait_for(server, "named", "done", "failed")
    assert run["status"] == "done", log_of(server, "named")
    assert log_of(server, "named").split() == ["1000", "/tmp", "hi", "there"]


def test_an_image_that_is_nowhere_ends_the_run_with_the_engine_s_reason(server: Server) -> None:
    submit(server, task("nowhere", "true", image="127.0.0.1:9/no/such:image"))
    run = wait_for(server, "nowhere", "failed", "done")
    submission = run["latest_job_submission"]
    assert submission["termination_reason"] == "creating_container_error"
    assert "no/such" in submission["termination_reason_message"]


def test_exit_status_and_stop(server: Server) -> None:
    submit(server, task("fails", "sh -c 'exit 9'", image=BUSYBOX))
    assert wait_for(server, "fails", "failed")["latest_job_submission"]["exit_status"] == 9
    submit(server, task("endless", "sleep 600", image=BUSYBOX))
    wait_for(server, "endless", "running")
    server.call("/api/project/main/runs/stop", {"runs_names": ["endless"], "abort": False})
    assert (
        wait_for(server, "endless", "terminated")["latest_job_submission"]["termination_reason"] == "terminated_by_user"
    )


def test_a_dev_environment_stays_in_an_image_without_tail(server: Server) -> None:
    spec = task("bare", "true", image=BUSYBOX)
    del spec["configuration"]["commands"]
    spec["configuration"]["type"] = "dev-environment"
    submit(server, spec)
    until("it to say how to connect", lambda: "Connect to" in log_of(server, "bare"))
    server.call("/api/project/main/runs/stop", {"runs_names": ["bare"], "abort": False})
    run = wait_for(server, "bare", "terminated", "failed", "done")
    assert (run["status"], run["latest_job_submission"]["termination_reason"]) == ("terminated", "terminated_by_user")


def test_a_container_outlives_server_and_agent_and_loses_no_line(server: Server) -> None:
    counting = f"for i in {{1..{LINES}}}; do echo line $i; sleep 0.1; done"
    submit(server, task("counting", counting))
    until("some output", lambda: "line 5" in log_of(server, "counting"))
    before = run_of(server, "counting")["latest_job_submission"]["id"]
    server.kill()
    os.kill(agent_pid(server), signal.SIGKILL)
    server.start()
    run = wait_for(server, "counting", "done", "failed")
    assert (run["status"], run["latest_job_submission"]["id"]) == ("done", before)
    assert log_of(server, "counting").splitlines() == expected()


def test_nothing_is_left_of_what_is_over(server: Server, tmp_path: Path) -> None:
    tasks = server.data / "agent" / "tasks"
    until("the agent to clear up", lambda: not any(tasks.iterdir()))
