"""The Docker runtime's requests and how it reads responses; the engine itself is in `test_docker_real`."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.task_runtime import TaskUsage
from chalicelib.agent.runtimes.docker import (
    Pull,
    container_body,
    home_of,
    open_files,
    usage_of,
    user_text,
    venv_dir,
    working_dir_of,
)
from chalicelib.agent.runtimes.docker_client import split_image
from chalicelib.agent.runtimes.visibility import TaskCards, cards_of


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("python", ("python", "latest")),
        ("python:3.12", ("python", "3.12")),
        ("host:5000/team/app", ("host:5000/team/app", "latest")),
        ("host:5000/team/app:1", ("host:5000/team/app", "1")),
        ("app@sha256:00ff", ("app", "sha256:00ff")),
    ],
)
def test_image_names(image: str, want: tuple[str, str]) -> None:
    assert split_image(image) == want


def body(gpus: list[str] | None = None, **spec: Any) -> dict[str, Any]:
    spec_given = {"image": "i", "commands": ["a", "b", "c"], **spec}
    return container_body(spec_given, "/w", cards_of(spec_given, gpus or []), {"label": "x"})


def test_commands_replace_the_images_entrypoint() -> None:
    made = body()
    assert (made["Entrypoint"], made["Cmd"], made["WorkingDir"], made["Tty"]) == (["a"], ["b", "c"], "/w", True)


def test_no_commands_leave_the_images_own() -> None:
    assert {"Entrypoint", "Cmd"} & set(body(commands=[])) == set()


def test_the_whole_machine_has_no_limits() -> None:
    host = body(cpu=0, memory_bytes=0, shm_bytes=0)["HostConfig"]
    assert {"Memory", "NanoCpus", "ShmSize", "DeviceRequests", "Devices"} & set(host) == set()


def test_limits_are_in_the_engines_units() -> None:
    host = body(cpu=1.5, memory_bytes=64 << 20, shm_bytes="8388608")["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (1_500_000_000, 64 << 20, 64 << 20)
    assert host["ShmSize"] == 8 << 20


def test_a_container_in_full() -> None:
    made = body(env={"B": 2, "A": "1"}, hostfile="h", working_dir="w")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert made == {
        "Image": "i",
        "Env": [
            "A=1",
            "B=2",
            "DSTACK_MPI_HOSTFILE=/dstack/mpi/hostfile",
            "DSTACK_REPO_DIR=/w",
            "DSTACK_WORKING_DIR=/w",
        ],
        "Tty": True,
        "Labels": {"label": "x"},
        "WorkingDir": "/w",
        "HostConfig": {
            "Privileged": False,
            "LogConfig": {"Type": "local", "Config": {"max-size": "1g", "max-file": "2"}},
            "ConsoleSize": [40, 120],
            "NetworkMode": "bridge",
            "Init": True,
            "PidsLimit": 16384,
            "Ulimits": [{"Name": "nofile", "Soft": min(65536, hard), "Hard": min(524288, hard)}],
        },
        "Entrypoint": ["a"],
        "Cmd": ["b", "c"],
    }
    host = body(privileged=True, network="host")["HostConfig"]
    assert (host["Privileged"], host["NetworkMode"]) == (True, "host")


def test_gpus_are_given_and_no_variable_gets_around_that() -> None:
    made = body(["GPU-a"], env={"NVIDIA_VISIBLE_DEVICES": "all"}, gpu_vendor="nvidia")
    assert made["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == ["GPU-a"]
    assert [text for text in made["Env"] if "VISIBLE" in text] == ["NVIDIA_VISIBLE_DEVICES=GPU-a"]
    made = body(env={"NVIDIA_VISIBLE_DEVICES": "all"}, gpu_vendor="nvidia")
    assert "DeviceRequests" not in made["HostConfig"] and "NVIDIA_VISIBLE_DEVICES=void" in made["Env"]


def test_processes_and_open_files_are_limited() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for spec in ({}, {"privileged": True}):
        host = body(**spec)["HostConfig"]
        assert host["PidsLimit"] == 16384
        assert host["Ulimits"] == [{"Name": "nofile", "Soft": min(65536, hard), "Hard": min(524288, hard)}]


@pytest.mark.parametrize(
    ("hard", "want"), [(20_000, (20_000, 20_000)), (100_000, (65536, 100_000)), (-1, (65536, 524288))]
)
def test_open_files_stay_within_the_machines_own_limit(hard: int, want: tuple[int, int]) -> None:
    assert open_files(hard) == want


def test_a_privileged_container_which_sees_all_nodes_is_told_its_gpus() -> None:
    env = body(["GPU-a", "GPU-b"], gpu_vendor="nvidia", privileged=True)["Env"]
    assert "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b" in env and "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b" in env
    assert "CUDA_VISIBLE_DEVICES=-1" in body(gpu_vendor="nvidia", privileged=True)["Env"]
    own = body(["GPU-a"], gpu_vendor="nvidia", privileged=True, env={"CUDA_VISIBLE_DEVICES": "0"})["Env"]
    assert "CUDA_VISIBLE_DEVICES=0" in own, "its user may choose among them"
    assert not [text for text in body(["GPU-a"], gpu_vendor="nvidia")["Env"] if text.startswith("CUDA")]


def test_shared_memory_is_the_jobs_own_or_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:05:00.0/accel/accel0").mkdir(parents=True)
    cards = TaskCards("intel", ["0"], ["0000:05:00.0"], str(tmp_path))
    spec: dict[str, Any] = {"image": "i", "shm_bytes": 5}
    host = container_body(spec, "/w", cards, {})["HostConfig"]
    assert (host["Runtime"], host["ShmSize"], "IpcMode" in host) == ("habana", 5, False)
    host = container_body({**spec, "privileged": True}, "/w", cards, {})["HostConfig"]
    assert (host["IpcMode"], "ShmSize" in host) == ("host", False), "not every engine takes both"


@pytest.mark.parametrize(
    ("user", "want"),
    [
        ("someone", "someone"),
        ({"username": "someone", "groupname": None, "uid": None, "gid": None}, "someone"),
        ({"uid": 0, "gid": 0}, "0:0"),
        ({"uid": 1000, "groupname": "video"}, "1000:video"),
    ],
)
def test_users(user: Any, want: str) -> None:
    assert user_text(user) == want
    assert body(user=user)["User"] == want


def test_home_and_working_directory() -> None:
    assert home_of({}) == "/root"
    assert home_of({"user": "someone"}) == "/home/someone"
    assert home_of({"user": "someone", "home_dir": "/h"}) == "/h"
    image = {"Config": {"WorkingDir": "/app"}}
    assert working_dir_of({}, image) == "/app"
    assert working_dir_of({"working_dir": "sub"}, image) == "/app/sub"
    assert working_dir_of({"working_dir": "~/x", "home_dir": "/h"}, image) == "/h/x"
    assert working_dir_of({}, {}) == "/"


def test_a_pull_is_summed_over_its_layers() -> None:
    pull = Pull()
    for line in [
        {"status": "Pulling from library/x", "id": "latest"},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 10, "total": 100}},
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 5, "total": 50}},
        {"status": "Download complete", "id": "b", "progressDetail": {}},
        {"status": "Extracting", "id": "b", "progressDetail": {"current": 20, "total": 50}},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 60, "total": 100}},
    ]:
        pull.take(line)
    assert pull.progress() == {
        "downloaded_bytes": 110,
        "extracted_bytes": 20,
        "total_bytes": 150,
        "is_total_bytes_final": True,
    }
    assert Pull().progress()["is_total_bytes_final"] is False


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        ([("Downloading", {})], (0, 0, 0, False)),
        ([("Downloading", {"current": 5})], (5, 0, 0, False)),
        ([("Downloading", {"current": 5, "total": 9}), ("Downloading", {"total": 8})], (5, 0, 9, True)),
        ([("Downloading", {"total": 9}), ("Extracting", {})], (9, 0, 9, True)),
        ([("Downloading", {"total": 9}), ("Extracting", {"current": 3})], (9, 3, 9, True)),
        ([("Downloading", {"total": 9}), ("Download complete", {})], (9, 0, 9, True)),
        ([("Downloading", {"total": 9}), ("Extracting", {"current": 3}), ("Pull complete", {})], (9, 9, 9, True)),
        ([("Already exists", {}), ("Verifying Checksum", {"total": 3})], (0, 0, 0, False)),
    ],
)
def test_one_layer_of_a_pull(lines: list[tuple[str, dict[str, int]]], want: tuple[int, int, int, bool]) -> None:
    pull = Pull()
    for status, detail in lines:
        pull.take({"status": status, "id": "a", "progressDetail": detail})
    assert tuple(pull.progress().values()) == want


def test_a_line_about_no_layer_counts_nothing() -> None:
    pull = Pull()
    pull.take({"status": "Downloading", "progressDetail": {"current": 5, "total": 9}})
    assert pull.progress()["downloaded_bytes"] == 0


@pytest.mark.parametrize(
    ("memory", "want"),
    [
        ({"usage": 1000, "stats": {"total_inactive_file": 300, "inactive_file": 1}}, TaskUsage(5, 1000, 700)),
        ({"usage": 1000, "stats": {"inactive_file": 200}}, TaskUsage(5, 1000, 800)),
        ({"usage": 1000}, TaskUsage(5, 1000, 1000)),
        ({}, None),
    ],
)
def test_usage_in_both_versions_of_cgroups(memory: dict[str, Any], want: TaskUsage | None) -> None:
    assert usage_of({"cpu_stats": {"cpu_usage": {"total_usage": 5999}}, "memory_stats": memory}) == want


@pytest.mark.parametrize(
    ("env", "where"),
    [
        (["PATH=/usr/local/bin", "PYTHON_VERSION=3.12.1"], "/usr/local"),
        (["PYTHON_VERSION=3.12.1", "VIRTUAL_ENV=/venv"], "/venv"),
        (["PATH=/bin"], ""),
        (None, ""),
    ],
)
def test_a_job_is_told_where_its_images_python_is(env: list[str] | None, where: str) -> None:
    assert venv_dir({"Config": {"Env": env}}) == where
    lines = container_body({"image": "i", "env": {}}, "/w", cards_of({}, []), {}, where)["Env"]
    assert [line for line in lines if line.startswith("DSTACK_VENV_DIR")] == [f"DSTACK_VENV_DIR={where}"] * bool(where)
