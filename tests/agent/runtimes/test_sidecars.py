"""The containers beside a job on several nodes: in their order, ready before it, gone after it."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import CONTAINER, TaskError
from chalicelib.agent.runtimes import process
from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.agent.runtimes.docker_client import DockerClient
from chalicelib.agent.runtimes.sidecars import LABEL, body
from tests.agent.docker_engine import Engine
from tests.agent.runtimes.test_docker_work import Bench, bench, engine  # noqa: F401 - fixtures
from tests.agent.runtimes.test_node_ssh import NODES

PLUGIN, RECEIVER = "vendor/plugin:1", "vendor/receiver:2"
SIDECARS = [
    {"image": PLUGIN, "args": ["install"], "mounts": {"/var/lib": "/var/lib"}, "installs": True},
    {"image": RECEIVER, "args": ["--nics=8"], "env": {"A": "b"}, "ready": "manager is ready"},
]


def begin(bench: Bench, sidecars: list[dict[str, Any]] = SIDECARS, **more: Any) -> None:  # noqa: F811
    interconnect = {"folders": [], "devices": [], "sidecars": sidecars, **more}
    bench.begin(network="host", node_ssh=NODES, interconnect=interconnect, gpus=("GPU-0",))


@pytest.fixture
def ready(engine: Engine) -> Engine:  # noqa: F811
    engine.runs |= {PLUGIN: (b"installed\n", 0), RECEIVER: (b"starting\nManager is ready\n", None)}
    return engine


def test_they_are_pulled_and_started_before_the_job_and_removed_with_it(bench: Bench, ready: Engine) -> None:  # noqa: F811
    begin(bench)
    assert [call for call in ready.calls("POST /containers") if call.endswith(("create", "start"))] == [
        "POST /containers/create",
        "POST /containers/dstack-t-0/start",
        "POST /containers/create",
        "POST /containers/dstack-t-1/start",
        "POST /containers/create",
        "POST /containers/dstack-t/start",
    ]
    pulled = [each.query for each in ready.requests if each.path == "/images/create"]
    assert [(each["fromImage"], each["tag"]) for each in pulled] == [("vendor/plugin", "1"), ("vendor/receiver", "2")]
    assert not any("X-Registry-Auth" in each.headers for each in ready.requests)
    receiver = ready.containers["dstack-t-1"].body
    assert (receiver["Cmd"], receiver["Env"], receiver["HostConfig"]["NetworkMode"]) == (["--nics=8"], ["A=b"], "host")
    assert receiver["HostConfig"]["Privileged"] and receiver["HostConfig"]["DeviceRequests"][0]["Count"] == -1
    assert ready.containers["dstack-t-0"].body["HostConfig"]["Binds"] == ["/var/lib:/var/lib"]
    bench.runtime.remove(bench.folder)
    assert ready.containers == {}


def test_an_installation_that_fails_ends_the_job_with_what_it_printed(bench: Bench, ready: Engine) -> None:  # noqa: F811
    ready.runs[PLUGIN] = b"no space\n", 3
    with pytest.raises(TaskError, match=r"vendor/plugin:1.*ended with status 3: no space") as failed:
        begin(bench)
    assert failed.value.reason == "creating_container_error" and "dstack-t" not in ready.containers


def test_one_that_ends_before_it_is_ready_ends_the_job(bench: Bench, ready: Engine) -> None:  # noqa: F811
    ready.runs[RECEIVER] = b"no such device\n", 0
    with pytest.raises(TaskError, match=r"vendor/receiver:2.*status 0: no such device"):
        begin(bench)


def test_the_job_waits_for_what_it_prints(bench: Bench, ready: Engine) -> None:  # noqa: F811
    ready.runs[RECEIVER] = b"starting\n", None
    started = threading.Thread(target=begin, args=(bench,))
    started.start()
    try:
        while "dstack-t-1" not in ready.containers or ready.containers["dstack-t-1"].status != "running":
            started.join(0.01)
        assert "dstack-t" not in ready.containers
    finally:
        ready.containers["dstack-t-1"].says(b"Manager is ready\n")
        started.join()
    assert ready.containers["dstack-t"].status == "running"


@pytest.fixture
def hurried(tmp_path: Path, ready: Engine) -> Bench:
    """Eleven minutes pass whenever somebody looks at the clock."""
    seconds, found = itertools.count(step=660), Bench(tmp_path, ready)
    found.runtime = DockerRuntime(str(tmp_path), ready.socket, clock=lambda: float(next(seconds)))
    return found


def test_one_that_never_says_that_it_is_ready_is_waited_for_two_minutes(hurried: Bench, ready: Engine) -> None:
    """It runs: perhaps a newer one says it in other words."""
    ready.runs[RECEIVER] = b"starting\n", None
    begin(hurried, SIDECARS[1:])
    assert ready.containers["dstack-t"].status == "running"


def test_an_installation_that_never_ends_has_failed(hurried: Bench, ready: Engine) -> None:
    ready.runs[PLUGIN] = b"unpacking\n", None
    with pytest.raises(TaskError, match=r"vendor/plugin:1.*hasn't ended after 600 s"):
        begin(hurried)


def test_a_machine_without_a_container_engine_refuses_them() -> None:
    with pytest.raises(TaskError, match="needs containers beside it"):
        process.check({"commands": ["x"], "interconnect": {"sidecars": SIDECARS}}, CONTAINER)


def test_an_image_that_cant_be_pulled_is_named(bench: Bench, ready: Engine) -> None:  # noqa: F811
    ready.pulls = [{"error": "denied"}]
    with pytest.raises(TaskError, match=r"vendor/plugin:1.*denied"):
        begin(bench)


def test_those_of_a_job_before_are_removed_and_other_agents_stay(bench: Bench, ready: Engine) -> None:  # noqa: F811
    own = {"dstack.agent": bench.folder.data, "dstack.task": "before"}
    ready.container("left", body={"Labels": {**own, LABEL: "before"}})
    ready.container("job", body={"Labels": own})
    ready.container("theirs", body={"Labels": {"dstack.agent": "/other", LABEL: "x"}})
    begin(bench)
    assert ready.containers.keys() == {"job", "theirs", "dstack-t-0", "dstack-t-1", "dstack-t"}


def test_those_of_a_job_that_nobody_knows_are_swept(bench: Bench, ready: Engine) -> None:  # noqa: F811
    begin(bench)
    bench.runtime.sweep(set())
    assert ready.containers == {}


def test_no_gpus_are_requested_on_a_machine_without_any() -> None:
    assert "DeviceRequests" not in body({"image": "a"}, {}, False)["HostConfig"]


def test_programs_look_for_libraries_in_its_folder_first(bench: Bench, ready: Engine) -> None:  # noqa: F811
    ready.images["test/app:1"]["Config"]["Env"] = ["LD_LIBRARY_PATH=/usr/local/cuda/lib64"]
    begin(bench, libraries="/var/lib/plugin/lib64")
    assert "LD_LIBRARY_PATH=/var/lib/plugin/lib64:/usr/local/cuda/lib64" in bench.container.body["Env"]


def test_what_a_container_prints_is_read_to_its_end(engine: Engine) -> None:  # noqa: F811
    engine.container("x", output=b"one\n", status="exited")
    assert b"".join(DockerClient(engine.socket).output("x", lambda: None)) == b"one\n"
