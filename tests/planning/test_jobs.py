"""From a run's spec to its job, as clients expect it, and to the task an agent is handed."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.jobs import Assignment
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.errors import Invalid, NotSupported
from chalicelib.planning.jobs import agent_task, effective, job_specs
from chalicelib.planning.nodes import one_node, task_env
from tests.world import nouns as b

# What a 0.22 client gets for a plain task with an image, field for field.
EXPECTED: dict[str, Any] = {
    "replica_num": 0,
    "job_num": 0,
    "job_name": "train-0-0",
    "jobs_per_replica": 1,
    "replica_group": "0",
    "app_specs": [],
    "user": None,
    "commands": ["/bin/sh", "-i", "-c", "ls"],
    "env": {"A": "5"},
    "home_dir": "/home/user",
    "image_name": "ubuntu",
    "privileged": False,
    "single_branch": True,
    "max_duration": None,
    "stop_duration": 300,
    "utilization_policy": None,
    "registry_auth": None,
    "retry": None,
    "volumes": [],
    "ssh_key": None,
    "working_dir": None,
    "repo_data": {"repo_type": "virtual"},
    "repo_code_hash": None,
    "repo_dir": "/workflow",
    "repo_exists_action": None,
    "file_archives": [],
    "service_port": None,
    "probes": [],
    "node_group_index": 0,
    "node_group_name": "0",
    "node_group_job_index": 0,
}


def test_the_job_of_a_plain_task_is_what_clients_expect() -> None:
    raw = {
        "run_name": "train",
        "repo_data": {"repo_type": "virtual"},
        "configuration": {
            "type": "task",
            "image": "ubuntu",
            "commands": ["ls"],
            "env": {"A": "5"},
            "home_dir": "/home/user",
        },
    }
    dumped = b.job_spec(RunSpec.model_validate(raw)).model_dump(mode="json")
    assert {name: dumped[name] for name in EXPECTED} == EXPECTED
    needs = dumped["requirements"]
    assert (needs["spot"], needs["multinode"], needs["max_price"], needs["backend_options"]) == (
        False,
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("config", "argv"),
    [
        ({"commands": ["a", "b"]}, ["/bin/bash", "-i", "-c", "a && b"]),
        ({"commands": ["a"], "image": "x"}, ["/bin/sh", "-i", "-c", "a"]),
        ({"commands": ["a"], "shell": "sh"}, ["/bin/sh", "-i", "-c", "a"]),
        ({"commands": ["serve &", "wait"]}, ["/bin/bash", "-i", "-c", "{ serve & } && wait"]),
        ({"commands": ["if a; then\n  b\nfi\n", "c"]}, ["/bin/bash", "-i", "-c", "if a; then\n  b\nfi && c"]),
        (
            {"commands": ["--port", "8 0"], "image": "x", "entrypoint": "python -m 'my app'"},
            ["python", "-m", "my app", "--port", "8 0"],
        ),
        ({"commands": [], "image": "x"}, []),
    ],
)
def test_commands(config: dict[str, Any], argv: list[str]) -> None:
    assert list(b.job_spec(b.run_spec(**config)).commands) == argv


@pytest.mark.parametrize(
    ("config", "image", "runtime"),
    [
        ({}, "base:3.12", None),
        ({"python": 3.1}, "base:3.10", "docker"),
        ({"nvcc": True}, "devel:3.12", "docker"),
        ({"image": "ubuntu"}, "ubuntu", "docker"),
        ({"docker": True}, "dind", "docker"),
        ({"image": "scratch"}, "scratch", None),
    ],
)
def test_the_image_and_whether_it_was_asked_for(config: dict[str, Any], image: str, runtime: str | None) -> None:
    spec = b.job_spec(b.run_spec(**config))
    assert (spec.image_name, spec.runtime) == (image, runtime)


@pytest.mark.parametrize(
    ("retry", "want"),
    [
        (None, None),
        (False, None),
        (True, (("no-capacity", "interruption", "error"), 3600)),
        ({"on_events": ["error"]}, (("error",), 3600)),
        ({"duration": "2h"}, (("no-capacity", "interruption", "error"), 7200)),
    ],
)
def test_retry_is_filled_in(retry: Any, want: Any) -> None:
    filled = b.job_spec(b.run_spec(retry=retry)).retry
    assert (filled and (filled.on_events, filled.duration)) == want


def test_the_configuration_wins_over_its_profile_and_a_null_lets_it_through() -> None:
    spec = b.run_spec({"max_price": 1, "spot_policy": "spot", "retry": True}, max_price=2, retry=False)
    config = effective(spec).configuration
    assert (config.max_price, config.spot_policy, config.retry) == (2, "spot", False)


def test_what_nobody_said_is_filled_in() -> None:
    config = effective(b.run_spec()).configuration
    assert (config.priority, config.spot_policy) == (0, "on-demand")


def test_gpus_without_a_name_are_nvidias_where_the_image_is_ours() -> None:
    def vendor(**config: Any) -> Any:
        gpu = b.job_spec(b.run_spec(**config)).requirements.resources.gpu
        return gpu and gpu.vendor

    assert vendor(resources={"gpu": 1}) == "nvidia"
    assert vendor(resources={"gpu": 1}, image="x") is None
    assert vendor(resources={"gpu": "MI300X"}, image="x") == "amd"
    assert vendor(resources={"gpu": ["A100"][0] + ",Z9"}) is None
    assert vendor() is None


def test_services_have_no_jobs_here() -> None:
    with pytest.raises(NotSupported):
        service = {"type": "service", "port": 80, "commands": ["a"]}
        job_specs(RunSpec.model_validate({"configuration": service}), images=b.Images())


def test_a_job_is_told_where_it_is_and_its_user_has_the_last_word() -> None:
    host = b.host(has=b.resources(gpus=2), internal_ip="10.0.0.5", env={"TEAM": "a", "DSTACK_RUN_NAME": "fleet"})
    job, spec = b.job(b.run()), b.job_spec(b.run_spec(env={"DSTACK_NODE_RANK": "9"}))
    env = task_env(job, spec, one_node(job, host))
    assert (env["DSTACK_RUN_NAME"], env["DSTACK_JOB_ID"], env["DSTACK_RUN_ID"]) == ("train", job.id, job.run_id)
    assert (env["DSTACK_NODES_NUM"], env["DSTACK_GPUS_PER_NODE"], env["DSTACK_GPUS_NUM"]) == ("1", "2", "2")
    assert (env["DSTACK_NODES_IPS"], env["DSTACK_MASTER_NODE_IP"]) == ("10.0.0.5", "10.0.0.5")
    task = agent_task(job, spec, host, "main")
    assert task["hostfile"] == "10.0.0.5 slots=2\n"
    plain = one_node(job, b.host(has=b.resources(gpus=0), internal_ip="10.0.0.6"))
    assert plain.hostfile() == "10.0.0.6\n"
    assert (task["env"]["TEAM"], task["env"]["DSTACK_RUN_NAME"], task["env"]["DSTACK_NODE_RANK"]) == ("a", "train", "9")


def test_a_home_is_the_users_own_unless_another_is_named() -> None:
    """`/root` is what every client sends."""
    for written, want in (("/root", None), ("/home/me", "/home/me")):
        spec = b.job_spec(b.run_spec(home_dir=written))
        assert agent_task(b.job(b.run()), spec, b.host(), "main")["home_dir"] == want


def test_an_engine_is_started_before_the_jobs_commands() -> None:
    spec = b.job_spec(b.run_spec(docker=True, commands=["docker ps", "echo done"]))
    assert spec.commands[:3] == ("/bin/sh", "-i", "-c") and spec.commands[3].endswith("; fi && docker ps && echo done")
    assert spec.privileged and spec.docker
    with pytest.raises(Invalid, match="put it first in `commands`"):
        b.job_spec(b.run_spec(docker=True, entrypoint="python"))


def test_a_task_has_every_field_of_the_protocol() -> None:
    task = agent_task(b.job(b.run()), b.job_spec(b.run_spec()), b.host(), "main")
    protocol = (
        "id name project run_name commands env image user working_dir shell privileged registry_auth cpu memory_bytes "
        "shm_bytes gpus gpu_devices max_duration stop_duration files repo hostfile volumes home_dir runtime isolated "
        "docker ports host_user"
    )
    assert set(task) == set(protocol.split())
    assert (task["cpu"], task["memory_bytes"], task["gpus"]) == (0, 0, 0)


def test_a_python_that_the_default_image_cannot_give_is_refused_not_ignored() -> None:
    fixed, by_version = b.Images(), b.Images()
    fixed.base, fixed.devel, by_version.base = "mine:1", "cuda:1", "python:{python}"
    for wanted in ({"python": "3.11"}, {"python": "3.11", "nvcc": True}):
        with pytest.raises(Invalid, match="python"):
            job_specs(b.run_spec(**wanted), images=fixed)
    assert job_specs(b.run_spec(python="3.11"), images=by_version)[0].image_name == "python:3.11"


def test_a_task_in_full() -> None:
    spec = b.job_spec(
        b.run_spec(
            image="x",
            user="1000:video",
            resources={"shm_size": "1GB"},
            max_duration="1h",
            stop_duration="7s",
            registry_auth={"username": "u", "password": "p"},
            working_dir="w",
            privileged=True,
        )
    )
    share = b.offer("m", 1.0, blocks=1, total_blocks=2, has=b.resources(cpus=3, gb=2, gpus=2))
    host = b.host(has=b.resources(gpus=4), internal_ip="10.0.0.5")
    where = Assignment(
        instance_id=host.id, instance_name="h", fleet_id="f", fleet_name="f", offer=share, assigned_at=b.NOW
    )
    job = b.job(b.run(), assignment=where)
    task = agent_task(job, spec, host, "main")
    env = {name: value for name, value in task.pop("env").items() if name.startswith("DSTACK_GPUS")}
    assert env == {"DSTACK_GPUS_PER_NODE": "2", "DSTACK_GPUS_NUM": "2"}
    assert task == {
        "id": job.id,
        "name": "train-0-0",
        "project": "main",
        "run_name": "train",
        "commands": ["/bin/sh", "-i", "-c", "true"],
        "image": "x",
        "runtime": "docker",
        "user": {"uid": 1000, "username": None, "gid": None, "groupname": "video"},
        "working_dir": "w",
        "shell": "/bin/sh",
        "privileged": True,
        "docker": False,
        "ports": [],
        "registry_auth": {"username": "u", "password": "p"},
        "cpu": 3,
        "memory_bytes": 2 << 30,
        "shm_bytes": 1 << 30,
        "gpus": 2,
        "gpu_devices": [],
        "max_duration": 3600,
        "stop_duration": 7,
        "files": [],
        "repo": None,
        "hostfile": "10.0.0.5 slots=2\n",
        "host_user": None,
        "isolated": False,
        "volumes": [],
        "home_dir": None,
    }


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("1000", (1000, None, None, None)),
        ("ann", (None, "ann", None, None)),
        ("ann:7", (None, "ann", 7, None)),
        ("1000:video", (1000, None, None, "video")),
    ],
)
def test_a_user_as_it_is_written(written: str, want: tuple[Any, ...]) -> None:
    user = b.job_spec(b.run_spec(user=written)).user
    assert user is not None and (user.uid, user.username, user.gid, user.groupname) == want


def test_ports_are_apps_but_those_that_the_language_keeps() -> None:
    apps = b.job_spec(b.run_spec(ports=["8000:80", 9_999, 10_000, 10_999, 11_000])).app_specs
    assert [(app.port, app.map_to_port, app.app_name) for app in apps] == [
        (80, 8000, "app_0"),
        (9_999, 9_999, "app_1"),
        (11_000, 11_000, "app_2"),
    ]


@pytest.mark.parametrize(("written", "want"), [(None, 300), ("off", None), ("9s", 9)])
def test_how_long_a_job_may_take_to_stop(written: Any, want: int | None) -> None:
    assert b.job_spec(b.run_spec(stop_duration=written)).stop_duration == want


def test_a_job_is_named_after_its_run() -> None:
    raw: dict[str, Any] = {"configuration": {"type": "task", "commands": ["x"], "name": "mine"}}
    assert b.job_spec(RunSpec.model_validate(raw)).job_name == "mine-0-0"
    assert b.job_spec(RunSpec.model_validate({**raw, "run_name": "other"})).job_name == "other-0-0"
    del raw["configuration"]["name"]
    assert b.job_spec(RunSpec.model_validate(raw)).job_name == "run-0-0"
