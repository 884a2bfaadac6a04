"""A task's container from its image to its exit status, against an engine that answers as the test says.

What a real engine makes of the same requests is in `test_docker_real`.
"""

from __future__ import annotations

import io
import json
import select
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel import process_tree
from chalicelib.agent.kernel.process_tree import polite_signal
from chalicelib.agent.kernel.task_runtime import COLUMNS, ROWS, Interrupted, TaskContext, TaskError, TaskUsage
from chalicelib.agent.kernel.tasks import TaskFolder
from chalicelib.agent.runtimes.docker import STORAGE_SECONDS, DockerRuntime, DockerWork
from chalicelib.agent.runtimes.docker_client import container_name
from chalicelib.agent.volumes.volumes import TaskVolumes
from tests.agent import docker_engine
from tests.agent.docker_engine import Container, Engine
from tests.agent.runtime_conformance import archive
from tests.agent.runtimes.test_node_ssh import NODES

IMAGE = "test/app:1"
NAME = "dstack-t"


class Bench:
    """A supervisor's side of `begin`, without a process: what was reported, how often it waited."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.engine, self.runtime = engine, DockerRuntime(str(folder), engine.socket)
        self.folder = TaskFolder(str(folder), "t")
        self.folder.create({})
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.pauses: list[float] = []
        self.patience = 3  # pauses of more than nothing, until somebody wants the task to end

    def report(self, state: str, **fields: Any) -> None:
        self.reports.append((state, fields))

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len([each for each in self.pauses if each]) >= self.patience:
            raise Interrupted

    def begin(
        self, state: str = "", spooled: int = 0, gpus: tuple[str, ...] = (), boot: str = "", **spec: Any
    ) -> DockerWork:
        wanted = {"image": IMAGE, "commands": ["sh", "-c", "x"], "env": {}, **spec}
        earlier = {"state": state, "boot": boot or process_tree.boot()} if state else {}
        volumes = TaskVolumes(self.folder, wanted.get("volumes") or [])
        return self.runtime.begin(
            TaskContext(self.folder, wanted, earlier, spooled, self.report, self.pause, volumes, gpus=list(gpus))
        )

    @property
    def container(self) -> Container:
        return self.engine.containers[NAME]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with docker_engine.running(tmp_path) as engine:
        engine.images[IMAGE] = {
            "Id": "sha256:a9",
            "Config": {"WorkingDir": "/app", "User": "app", "Env": ["VIRTUAL_ENV=/venv"]},
        }
        yield engine


@pytest.fixture
def bench(tmp_path: Path, engine: Engine) -> Bench:
    return Bench(tmp_path, engine)


def output(work: DockerWork) -> bytes:
    """All of it, until the connection ends."""
    data = work.read()
    while work.fileno() >= 0:
        select.select([work], [], [], docker_engine.PATIENCE)
        data += work.read()
    return data


def more(work: DockerWork) -> bytes:
    select.select([work], [], [], docker_engine.PATIENCE)
    return work.read()


def names_in(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return tar.getnames()


# A task that starts --------------------------------------------------------------------------------------------------


def test_one_of_several_nodes_can_log_in_to_the_others_as_soon_as_it_runs(bench: Bench) -> None:
    bench.engine.holds = {"/usr/bin/ssh": b"", "/etc/passwd": b"app:x:7:7::/home/app:/bin/sh\n"}
    bench.begin(network="host", node_ssh=NODES)
    at = next(n for n, each in enumerate(bench.engine.requests) if str(each).endswith("/start"))
    put = [each.body for each in bench.engine.requests[:at] if each.method == "PUT"]
    names = [name for body in put for name in names_in(body)]
    assert "home/app/.ssh/dstack_job" in names
    assert bench.container.body["HostConfig"]["NetworkMode"] == "host" and not bench.reports[-1][1]["message"]


def test_one_of_several_nodes_runs_without_an_ssh_client_and_says_so(bench: Bench) -> None:
    bench.begin(network="host", node_ssh=NODES)
    state, report = bench.reports[-1]
    assert state == "running" and "image test/app:1 has no ssh client" in report["message"]


def test_one_of_several_nodes_is_reached_in_the_machines_own_network(bench: Bench) -> None:
    bench.begin(network="host", node_ssh=NODES)
    assert bench.runtime.network(bench.folder) is None
    bench.folder.write_state({})


def test_a_container_has_the_address_that_one_of_its_networks_gave_it(bench: Bench) -> None:
    bench.begin()
    assert bench.runtime.address(bench.folder) == ""
    bench.container.networks = {"none": {"IPAddress": ""}, "bridge": {"IPAddress": "172.17.0.2"}}
    assert bench.runtime.address(bench.folder) == "172.17.0.2"


def test_a_port_of_the_host_that_is_taken_ends_one_of_several_nodes(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as is_occupied:
        port = is_occupied.getsockname()[1]
        with pytest.raises(TaskError, match=f"port {port}; choose another$") as refused:
            bench.begin(network="host", node_ssh=NODES, ports=[port])
        assert refused.value.reason == "ports_binding_failed"
        bench.begin(ports=[port])  # it has a network of its own


def test_a_task_is_created_attached_to_and_only_then_started(bench: Bench) -> None:
    work = bench.begin()
    wanted = ["create", "archive", "attach", "start", "resize"]
    assert [line.split("/")[-1] for line in bench.engine.calls() if line.split("/")[-1] in wanted] == wanted
    assert bench.engine.request("POST /containers/create").query == {"name": NAME}
    assert bench.container.body["Labels"] == {"dstack.task": "t", "dstack.agent": bench.folder.data}
    assert bench.engine.request(f"POST /containers/{NAME}/attach").query == {
        "stdout": "1",
        "stderr": "1",
        "stream": "1",
    }
    assert bench.engine.request(f"POST /containers/{NAME}/attach").headers["Upgrade"] == "tcp"
    assert bench.engine.request(f"POST /containers/{NAME}/resize").query == {"h": str(ROWS), "w": str(COLUMNS)}
    assert bench.reports == [("running", {"username": "app", "working_dir": "/app", "message": ""})]
    assert work.fileno() >= 0


def test_the_container_gets_the_images_python_the_folder_and_the_gpus(bench: Bench) -> None:
    bench.begin(working_dir="sub", gpus=("GPU-1",))
    body = bench.container.body
    assert (body["Image"], body["WorkingDir"]) == (IMAGE, "/app/sub")
    assert "DSTACK_VENV_DIR=/venv" in body["Env"]
    assert body["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == ["GPU-1"]


@pytest.mark.parametrize(
    ("user", "config", "want"),
    [(None, {}, "root"), (None, {"User": "app"}, "app"), ({"uid": 7}, {"User": "app"}, "7")],
)
def test_who_runs_it_is_reported(bench: Bench, user: Any, config: dict[str, Any], want: str) -> None:
    bench.engine.images[IMAGE] = {"Id": "sha256:a9", "Config": config}
    bench.begin(user=user)
    assert bench.reports[-1][1]["username"] == want


def test_files_and_hostfile_are_put_where_the_user_wants_them(bench: Bench) -> None:
    Path(bench.folder.files).mkdir()
    (Path(bench.folder.files) / "0").write_bytes(archive({"data/a.txt": b"A"}))
    (Path(bench.folder.files) / "1").write_bytes(archive({"lone.cfg": b"C"}))
    bench.engine.holds = {"/etc/passwd": b"app:x:1:1::/app:/bin/sh\n"}
    bench.begin(files=[{"path": "given"}, {"path": "~/"}], home_dir="/h", hostfile="10.0.0.5\n")
    puts = [request for request in bench.engine.requests if request.method == "PUT"]
    assert {(request.path, request.query["path"]) for request in puts} == {(f"/containers/{NAME}/archive", "/")}
    assert [members(request.body) for request in puts] == [
        {},  # the home that it names
        {"app/given/a.txt": b"A"},
        {"h/lone.cfg": b"C"},
        {"dstack/mpi/hostfile": b"10.0.0.5\n"},
    ]
    assert all(request.headers["Content-Type"] == "application/x-tar" for request in puts)


def members(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = [(member.name, tar.extractfile(member)) for member in tar if member.isfile()]
        return {name: file.read() for name, file in files if file}


@pytest.mark.parametrize(
    ("there", "shell", "message"),
    [
        (("/bin/sh",), "/bin/bash", "has no /bin/bash to run `commands` in; set `shell: sh`"),
        (("/bin/bash",), "/bin/sh", "has no /bin/sh to run `commands` in; set `shell: bash`"),
        (("/bin/sh",), "/bin/zsh", "has no /bin/zsh to run `commands` in; set `shell: sh`"),
        ((), "/bin/sh", "has no shell to run `commands` in; put the program in `entrypoint`, and its arguments"),
    ],
)
def test_an_image_without_the_shell_says_what_to_do(
    bench: Bench, there: tuple[str, ...], shell: str, message: str
) -> None:
    bench.engine.everywhere = there
    with pytest.raises(TaskError) as caught:
        bench.begin(shell=shell)
    assert (caught.value.reason, message in caught.value.message) == ("creating_container_error", True)
    assert not bench.engine.calls(f"POST /containers/{NAME}/start")


def test_an_image_without_any_shell_runs_a_program(bench: Bench) -> None:
    bench.engine.everywhere = ()
    bench.begin(commands=["/app", "--serve"])
    assert (bench.container.body["Entrypoint"], bench.container.body["Cmd"]) == (["/app"], ["--serve"])


def test_a_home_that_the_job_names_is_made_for_its_user(bench: Bench) -> None:
    bench.engine.holds = {"/etc/passwd": b"app:x:1234:1234::/app:/bin/sh\n"}
    bench.begin(home_dir="/data/me")
    first = next(request for request in bench.engine.requests if request.method == "PUT")
    with tarfile.open(fileobj=io.BytesIO(first.body)) as tar:
        (home,) = tar.getmembers()
    assert (home.name, home.isdir(), home.uid, home.gid) == ("data/me", True, 1234, 1234)
    assert "HOME=/data/me" in bench.container.body["Env"]


def test_a_home_that_the_image_has_is_left_alone(bench: Bench) -> None:
    bench.engine.everywhere = ("/bin/sh", "/data/me")
    bench.begin(home_dir="/data/me", env={"HOME": "/mine"})
    puts = [request for request in bench.engine.requests if request.method == "PUT"]
    assert [members(request.body) for request in puts] == [{"dstack/mpi/hostfile": b""}]
    assert "HOME=/mine" in bench.container.body["Env"]


def test_an_engine_inside_keeps_its_layers_on_a_volume(bench: Bench) -> None:
    bench.begin(docker=True, privileged=True)
    assert bench.container.body["Volumes"] == {"/var/lib/docker": {}}


def test_a_task_without_an_image_is_refused(bench: Bench) -> None:
    with pytest.raises(TaskError, match="names no image") as caught:
        bench.begin(image="")
    assert caught.value.reason == "creating_container_error"


def test_what_an_earlier_try_left_is_removed_first(bench: Bench) -> None:
    bench.engine.container(NAME, status="created", body={"Labels": {"of": "an earlier try"}})
    bench.begin()
    assert bench.container.body["Labels"]["dstack.task"] == "t"
    requests = bench.engine.calls()
    assert requests.index(f"DELETE /containers/{NAME}") < requests.index("POST /containers/create")


def test_an_engine_that_refuses_is_quoted(bench: Bench) -> None:
    bench.engine.faults["POST /containers/create"] = (400, '{"message": "no such device"}')
    with pytest.raises(TaskError, match="Docker: no such device") as caught:
        bench.begin()
    assert (caught.value.reason, bench.pauses) == ("creating_container_error", [])


def test_an_engine_that_is_away_is_waited_for(bench: Bench) -> None:
    bench.engine.faults[f"GET /containers/{NAME}/json"] = (0, "")
    with pytest.raises(Interrupted):
        bench.begin()
    assert bench.pauses == [1.0, 1.0, 1.0]


def test_a_resize_that_comes_too_late_is_no_failure(bench: Bench) -> None:
    bench.engine.faults[f"POST /containers/{NAME}/resize"] = (409, "not running")
    bench.begin()
    assert bench.reports[-1][0] == "running"


# Its image -----------------------------------------------------------------------------------------------------------

PULLED = {"status": "Pull complete", "id": "a"}


def test_an_image_that_is_here_isnt_pulled(bench: Bench) -> None:
    bench.begin()
    assert bench.engine.calls("POST /images") == []
    assert [state for state, _ in bench.reports] == ["running"]


def test_a_missing_image_is_pulled_with_the_credentials_of_its_registry(bench: Bench) -> None:
    bench.engine.images.clear()
    bench.engine.pulls = [{"status": "Downloading", "id": "a", "progressDetail": {"current": 1, "total": 9}}, PULLED]
    bench.begin(image="host:5000/app", registry_auth={"username": "u", "password": "p"})
    request = bench.engine.request("POST /images/create")
    assert request.query == {"fromImage": "host:5000/app", "tag": "latest"}
    assert request.headers["X-Registry-Auth"]
    first, last = bench.reports[0], bench.reports[-2]
    assert first == (
        "pulling",
        {"pull": {"downloaded_bytes": 0, "extracted_bytes": 0, "total_bytes": 0, "is_total_bytes_final": False}},
    )
    assert last == (
        "pulling",
        {"pull": {"downloaded_bytes": 9, "extracted_bytes": 9, "total_bytes": 9, "is_total_bytes_final": True}},
    )
    assert [state for state, _ in bench.reports] == ["pulling", "pulling", "running"], "at most one a second"


def test_what_is_called_latest_is_asked_for_anew_and_does_without(bench: Bench) -> None:
    bench.engine.images["app"] = {"Id": "sha256:b0"}
    bench.engine.pulls = [{"error": "registry is down"}]
    bench.begin(image="app")
    assert len(bench.engine.calls("POST /images/create")) == 1
    assert bench.container.body["Image"] == "app"


def test_an_image_that_cant_be_had_is_named(bench: Bench) -> None:
    bench.engine.images.clear()
    bench.engine.pulls = [{"error": "manifest unknown"}]
    with pytest.raises(TaskError, match=f"image {IMAGE} can't be pulled: manifest unknown") as caught:
        bench.begin()
    assert caught.value.reason == "creating_container_error"


def test_an_engine_that_goes_away_while_it_pulls_is_asked_again(bench: Bench) -> None:
    bench.engine.images.clear()
    bench.engine.faults["POST /images/create"] = (0, "")
    with pytest.raises(Interrupted):
        bench.begin()
    assert len(bench.engine.calls("POST /images/create")) == 3


def test_a_task_may_be_ended_while_its_image_is_pulled(bench: Bench) -> None:
    bench.engine.images.clear()
    bench.engine.pulls = [PULLED, PULLED]
    bench.begin()
    assert bench.pauses == [0, 0], "a look at the user's wishes for each line"


# Its output ----------------------------------------------------------------------------------------------------------


def test_every_byte_arrives_and_then_the_exit_status(bench: Bench) -> None:
    work = bench.begin()
    bench.container.says(b"one ")
    assert (more(work), work.ended(), work.read()) == (b"one ", None, b"")
    assert work.wake_at() == float("inf")
    bench.container.says(b"\xfftwo")
    bench.container.exits(3)
    assert output(work) == b"\xfftwo"
    assert (work.ended(), work.out_of_memory(), work.fileno(), work.finish()) == (3, False, -1, b"")
    requests_before = len(bench.engine.requests)
    assert (work.ended(), work.wake_at()) == (3, float("inf"))
    assert len(bench.engine.requests) == requests_before, "what is known isn't asked again"


def test_memory_that_ran_out_is_said(bench: Bench) -> None:
    work = bench.begin()
    bench.container.exits(137, out_of_memory=True)
    output(work)
    assert (work.ended(), work.out_of_memory()) == (137, True)


def test_a_container_that_takes_a_moment_to_end_is_waited_for(bench: Bench) -> None:
    work = bench.begin()
    bench.container.change(cut=True)
    output(work)
    bench.container.change(ends_when_waited_for=5)
    assert work.ended() == 5
    assert len(bench.engine.calls(f"POST /containers/{NAME}/wait")) == 1


def test_a_lost_connection_is_made_anew_from_the_log_without_a_byte_twice(bench: Bench) -> None:
    work = bench.begin()
    bench.container.says(b"one ")
    received = more(work)
    bench.container.change(output=b"one two ", cut=True)
    received += output(work)
    bench.engine.faults[f"POST /containers/{NAME}/wait"] = (0, "")
    assert work.ended() is None
    assert bench.engine.request(f"GET /containers/{NAME}/logs").query == {"stdout": "1", "stderr": "1", "follow": "1"}
    bench.container.says(b"three ")
    received += more(work)
    bench.container.change(cut=True)
    received += output(work)
    bench.engine.faults[f"POST /containers/{NAME}/wait"] = (0, "")
    assert work.ended() is None
    bench.container.says(b"four")
    bench.container.exits(0)
    assert received + output(work) == b"one two three four"
    assert work.ended() == 0


def test_an_engine_that_is_away_is_asked_again_a_second_later(bench: Bench) -> None:
    work = bench.begin()
    bench.container.change(cut=True)
    output(work)
    bench.engine.faults[f"GET /containers/{NAME}/json"] = (0, "")
    before = len(bench.engine.requests)
    assert (work.ended(), work.ended()) == (None, None)
    assert len(bench.engine.requests) == before + 1, "not before its time"
    assert 0 < work.wake_at() < float("inf")


def test_a_container_that_somebody_removed_is_an_error_in_words(bench: Bench) -> None:
    work = bench.begin()
    bench.container.change(cut=True)
    output(work)
    bench.engine.containers.clear()
    with pytest.raises(TaskError, match="removed by someone else") as caught:
        work.ended()
    assert caught.value.reason == "executor_error"


# A supervisor that is new --------------------------------------------------------------------------------------------


def test_a_running_container_is_adopted_and_what_is_spooled_skipped(bench: Bench) -> None:
    bench.engine.container(NAME, status="running", output=b"0123456")
    work = bench.begin("running", spooled=4)
    assert bench.engine.calls("POST") == [], "neither created nor started again"
    bench.container.says(b"789")
    bench.container.exits(0)
    assert output(work) == b"456789"
    assert bench.reports == []


def test_a_spool_that_is_ahead_of_the_first_bytes_skips_more_of_them(bench: Bench) -> None:
    bench.engine.container(NAME, status="running", output=b"01")
    work = bench.begin("running", spooled=4)
    bench.container.says(b"2345")
    bench.container.exits(0)
    assert output(work) == b"45"


def test_a_running_task_whose_container_is_gone_isnt_started_twice(bench: Bench) -> None:
    with pytest.raises(TaskError, match="removed by someone else") as caught:
        bench.begin("running")
    assert caught.value.reason == "executor_error"
    assert bench.engine.calls("POST") == []


# Its end -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_stop_reaches_the_containers_first_process(bench: Bench, sleeper: subprocess.Popen[bytes]) -> None:
    work = bench.begin()
    bench.container.pid = sleeper.pid
    listens_to = polite_signal(sleeper.pid)  # not to SIGINT, where this test runs in the background of a shell
    work.signal_politely()
    assert sleeper.wait(docker_engine.PATIENCE) == -(listens_to or 0)


def test_a_firm_stop_is_sigterm(bench: Bench, sleeper: subprocess.Popen[bytes]) -> None:
    work = bench.begin()
    bench.container.pid = sleeper.pid
    work.signal_firmly()
    assert sleeper.wait(docker_engine.PATIENCE) == -signal.SIGTERM


def test_a_container_without_a_process_is_left_alone(bench: Bench) -> None:
    work = bench.begin()
    before = len(bench.engine.requests)
    work.signal_politely()
    bench.engine.containers.clear()
    work.signal_firmly()
    assert bench.engine.calls()[before:] == [f"GET /containers/{NAME}/json"] * 2


def awaited_end(work: DockerWork) -> int | None:
    """Once it is time to ask again."""
    while (status := work.ended()) is None and work.fileno() < 0:
        select.select([], [], [], max(0.0, work.wake_at() - time.monotonic()))
    return status


STOPPED = r"stopped from outside, by the Docker engine .* or by `docker stop`; with `live-restore`"


def test_a_container_that_ended_with_its_engine_isnt_said_to_be_done(bench: Bench) -> None:
    """The engine that answers isn't the one that started it."""
    work = bench.begin()
    bench.container.change(cut=True)
    output(work)
    bench.engine.faults[f"GET /containers/{NAME}/json"] = (0, "")
    assert work.ended() is None
    bench.engine.faults.clear()
    bench.engine.bridge_created = "2026-11-22T11:30:00.5+02:00"  # 9:30
    bench.container.says(b"asked to stop\n")
    bench.container.exits(0)
    assert awaited_end(work) is None, "its output comes first"
    assert output(work) == b"asked to stop\n"
    with pytest.raises(TaskError, match=STOPPED) as caught:
        awaited_end(work)
    assert caught.value.reason == "executor_error"


def test_an_engine_that_is_being_stopped_tells_in_its_events(bench: Bench) -> None:
    work = bench.begin()
    bench.engine.events = [{"Action": "kill"}]
    bench.container.exits(0)
    output(work)
    with pytest.raises(TaskError, match=STOPPED):
        awaited_end(work)
    query = bench.engine.request("GET /events").query
    assert json.loads(query["filters"]) == {"container": [NAME], "event": ["kill"]}
    assert query["since"] == "1795338000.500000" and float(query["until"]) <= time.time(), "it waits for no more"


@pytest.mark.parametrize(("live_restore", "created"), [(True, "2026-11-22T09:30:00Z"), (False, "2026-11-22T08:30:00Z")])
def test_a_container_that_outlives_its_engine_ends_by_itself(bench: Bench, live_restore: bool, created: str) -> None:
    bench.engine.live_restore, bench.engine.bridge_created = live_restore, created
    work = bench.begin()
    bench.container.exits(7)
    output(work)
    assert awaited_end(work) == 7


def test_who_asked_for_the_end_isnt_told_that_it_came_from_outside(bench: Bench) -> None:
    work = bench.begin()
    work.kill()
    bench.engine.events = [{"Action": "kill"}]
    bench.container.exits(137)
    output(work)
    assert awaited_end(work) == 137


def test_a_container_of_before_the_last_boot_ended_with_the_machine(bench: Bench) -> None:
    bench.engine.container(NAME, status="exited", exit_status=0, output=b"before\n")
    work = bench.begin("running", boot="an earlier one")
    assert output(work) == b"before\n"
    with pytest.raises(TaskError, match="the machine restarted; the task ended with it") as caught:
        awaited_end(work)
    assert caught.value.reason == "executor_error"


def test_a_kill_is_the_engines_and_may_come_too_late(bench: Bench) -> None:
    work = bench.begin()
    work.kill()
    assert bench.engine.calls()[-1] == f"POST /containers/{NAME}/kill"
    bench.engine.faults[f"POST /containers/{NAME}/kill"] = (409, "not running")
    work.kill()
    bench.engine.faults[f"GET /containers/{NAME}/json"] = (0, "")
    work.signal_politely()


# Between tasks -------------------------------------------------------------------------------------------------------


def test_usage_is_one_look(bench: Bench) -> None:
    bench.engine.usage = {
        "cpu_stats": {"cpu_usage": {"total_usage": 7_000}},
        "memory_stats": {"usage": 100, "stats": {"inactive_file": 150}},
    }
    assert bench.runtime.usage(bench.folder) is None, "there is no such container"
    bench.engine.container(NAME)
    assert bench.runtime.usage(bench.folder) == TaskUsage(7, 100, 0)
    assert bench.engine.request(f"GET /containers/{NAME}/stats").query == {"stream": "0", "one-shot": "1"}


def test_remove_and_sweep(bench: Bench) -> None:
    own = bench.folder.data
    for task, owner in [("t", own), ("kept", own), ("lost", own), ("theirs", "another agent")]:
        labels = {"dstack.task": task, "dstack.agent": owner}
        bench.engine.container(container_name(task), body={"Labels": labels})
    bench.runtime.remove(bench.folder)
    bench.runtime.sweep({"kept"})
    assert list(bench.engine.containers) == ["dstack-kept", "dstack-theirs"]


def test_an_engine_that_answers_is_no_problem(bench: Bench) -> None:
    assert bench.runtime.problem() == ""
    assert "no Docker engine" in DockerRuntime("owner", "/no/such.sock").problem()


def test_where_an_engine_keeps_its_data_is_asked_now_and_then(bench: Bench) -> None:
    now = [0.0]
    runtime = DockerRuntime("owner", bench.engine.socket, clock=lambda: now[0])
    bench.engine.faults["GET /info"] = (500, "starting")
    assert runtime.storage() == ""
    bench.engine.faults.clear()
    assert [runtime.storage() for _ in range(3)] == ["/var/lib/docker"] * 3
    assert len(bench.engine.calls("GET /info")) == 2, "what failed is asked again, what is known isn't"
    bench.engine.root, now[0] = "/mnt/docker", STORAGE_SECONDS
    assert runtime.storage() == "/mnt/docker"
