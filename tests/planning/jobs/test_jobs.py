"""From a run's spec to its job, as clients expect it, and to the task an agent is handed."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.job_specs import spec_of
from chalicelib.domain.jobs import Assignment
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.errors import Invalid
from chalicelib.planning.jobs import command_lists, inner_engine
from chalicelib.planning.jobs.jobs import agent_task, effective, job_specs
from chalicelib.planning.jobs.nodes import one_node, task_env
from chalicelib.planning.jobs.replica_groups import first_replicas, first_scales
from chalicelib.planning.runs.endings import grace_of
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
    "commands": ["ls"],
    "env": {"A": "5"},
    "home_dir": "/home/user",
    "image_name": "ubuntu",
    "privileged": False,
    "single_branch": True,
    "max_duration": None,
    "stop_duration": 10,
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
    ("config", "shell", "commands"),
    [
        ({"commands": ["a", " b &\n"]}, "/bin/bash", ["a", " b &\n"]),
        ({"commands": ["a"], "image": "x"}, "/bin/sh", ["a"]),
        ({"commands": ["a"], "shell": "sh"}, "/bin/sh", ["a"]),
        ({"commands": ["a"], "image": "x", "shell": "/opt/zsh"}, "/opt/zsh", ["a"]),
        (
            {"commands": ["--port", "8 0"], "image": "x", "entrypoint": "python -m 'my app'"},
            None,
            ["python", "-m", "my app", "--port", "8 0"],
        ),
        ({"commands": [], "image": "x"}, None, []),
    ],
)
def test_commands(config: dict[str, Any], shell: str | None, commands: list[str]) -> None:
    spec = b.job_spec(b.run_spec(**config))
    assert (spec.shell, list(spec.commands)) == (shell, commands)
    sent = agent_task(b.job(b.run()), spec, b.host(), "main")
    assert sent["commands"] == (commands if shell is None else command_lists.argv(shell, commands))
    assert sent["shell"] == shell


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


def service(**config: Any) -> RunSpec:
    config = {"type": "service", "port": 8000, **({} if "groups" in config else {"commands": ["serve"]}), **config}
    return RunSpec.model_validate({"run_name": "chat", "configuration": config})


def test_a_service_has_one_spec_a_group_as_clients_expect_it() -> None:
    big = {"name": "big", "replicas": 2, "commands": ["serve big"], "resources": {"cpu": "4.."}}
    small = {"replicas": 1, "commands": ["serve small"], "python": "3.11"}
    found = job_specs(service(groups=[big, small]), images=b.Images())
    assert [(each.job_name, each.replica_group, each.replica_num, each.service_port) for each in found] == [
        ("chat-0-0", "big", 0, 8000),
        ("chat-0-0", "1", 0, 8000),
    ]
    assert [each.commands[-1] for each in found] == ["serve big", "serve small"]
    assert [each.requirements.resources.cpu.count.min for each in found] == [4, 2]
    assert [each.image_name for each in found] == ["base:3.12", "base:3.11"]
    assert [(each.node_group_index, each.jobs_per_replica, each.app_specs) for each in found] == [(0, 1, ())] * 2


def test_a_model_is_asked_for_a_word_unless_probes_say_otherwise() -> None:
    (spec,) = job_specs(service(model="my-org/tiny"), images=b.Images())
    assert [probe.model_dump(mode="json") for probe in spec.probes] == [
        {
            "type": "http",
            "url": "/v1/chat/completions",
            "method": "post",
            "headers": [{"name": "Content-Type", "value": "application/json"}],
            "body": '{"model": "my-org/tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}',
            "timeout": 30,
            "interval": 15,
            "ready_after": 1,
            "until_ready": False,
        }
    ]
    for probes in ([], [{"type": "http", "url": "/health"}]):
        (spec,) = job_specs(service(model="my-org/tiny", probes=probes), images=b.Images())
        assert [probe.url for probe in spec.probes] == [probe["url"] for probe in probes]
    assert job_specs(service(), images=b.Images())[0].probes == ()


def test_a_replica_is_told_what_to_look_at() -> None:
    probe = {"type": "http", "url": "/health", "ready_after": 2}
    scaling = {"metric": "queue", "target": 2}
    groups = [
        {"replicas": "1..2", "commands": ["a"], "scaling": scaling},
        {"replicas": "1..2", "commands": ["b"], "scaling": scaling | {"metric": "rps"}},
    ]
    first, second = job_specs(service(groups=groups, probes=[probe]), images=b.Images())
    assert [(each.queued, each.unwatched) for each in (first, second)] == [(True, False), (False, False)]
    task = agent_task(b.job(b.run()), first, b.host(), "main")
    assert (task["service_port"], task["queue"], task["probes"][0]["ready_after"]) == (8000, True, 2)
    assert job_specs(service(probes=[]), images=b.Images())[0].unwatched


def test_numbers_run_on_across_groups() -> None:
    groups = [{"name": name, "replicas": 2, "commands": ["x"]} for name in ("a", "b")]
    spec = service(groups=groups)
    found = first_replicas(job_specs(spec, images=b.Images()), first_scales(spec.configuration))
    assert [(each.replica_group, each.replica_num, each.job_name) for each in found] == [
        ("a", 0, "chat-0-0"),
        ("a", 1, "chat-0-1"),
        ("b", 2, "chat-0-2"),
        ("b", 3, "chat-0-3"),
    ]


def test_the_spec_of_a_replica_is_that_of_its_group() -> None:
    groups = [{"name": name, "replicas": 1, "commands": [name]} for name in ("a", "b")]
    specs, run = job_specs(service(groups=groups), images=b.Images()), b.run("chat")
    own = spec_of(specs, b.job(run, replica=7, replica_group="b"))
    assert own is not None
    assert (own.job_name, own.replica_num, own.commands[-1]) == ("chat-0-7", 7, "b")
    assert spec_of(specs, b.job(run, replica_group="gone")) is None


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
    assert (spec.shell, spec.before, spec.commands) == ("/bin/sh", (inner_engine.START,), ("docker ps", "echo done"))
    assert agent_task(b.job(b.run()), spec, b.host(), "main")["commands"][-3:] == [*spec.before, *spec.commands]
    assert spec.privileged and spec.docker
    with pytest.raises(Invalid, match="put it first in `commands`"):
        b.job_spec(b.run_spec(docker=True, entrypoint="python"))


def test_a_task_has_every_field_of_the_protocol() -> None:
    task = agent_task(b.job(b.run()), b.job_spec(b.run_spec()), b.host(), "main")
    protocol = (
        "id name project project_id commands env image user working_dir shell privileged registry_auth cpu "
        "memory_bytes shm_bytes gpus gpu_devices max_duration stop_duration files repo hostfile volumes home_dir "
        "runtime isolated docker ports host_user steps user_permitted"
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
        "project_id": job.project_id,
        "commands": command_lists.argv("/bin/sh", ["true"]),
        "steps": [],
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
        "user_permitted": False,
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


@pytest.mark.parametrize(("written", "want"), [(None, 10), ("off", None), ("9s", 9)])
def test_how_long_a_job_may_take_to_stop(written: Any, want: int | None) -> None:
    spec = b.job_spec(b.run_spec(stop_duration=written))
    assert spec.stop_duration == want, "as clients read it"
    task = agent_task(b.job(b.run()), spec, b.host(), "main")
    assert task["stop_duration"] == want, "as agents are told for the end by max_duration"
    assert grace_of(spec) == (want and want * b.SECOND), "as stops are told"


def test_a_job_is_named_after_its_run() -> None:
    raw: dict[str, Any] = {"configuration": {"type": "task", "commands": ["x"], "name": "mine"}}
    assert b.job_spec(RunSpec.model_validate(raw)).job_name == "mine-0-0"
    assert b.job_spec(RunSpec.model_validate({**raw, "run_name": "other"})).job_name == "other-0-0"
    del raw["configuration"]["name"]
    assert b.job_spec(RunSpec.model_validate(raw)).job_name == "run-0-0"


@pytest.mark.parametrize(
    ("requested", "project", "isolated"),
    [(False, b.PROJECT, False), (True, b.PROJECT, True), (False, "other", True), (True, "other", True)],
)
def test_a_job_on_a_machine_of_another_project_is_kept_apart(requested: bool, project: str, isolated: bool) -> None:
    host = b.host().with_(project_id=project)
    task = agent_task(b.job(b.run()), b.job_spec(b.run_spec()).with_(isolated=requested), host, "main")
    assert task["isolated"] is isolated


def test_what_an_image_or_engine_cannot_do_is_refused_where_it_is_written() -> None:
    fixed = b.Images()
    fixed.base = "mine:1"
    for written, path in (({"python": "3.11"}, "python"), ({"docker": True, "entrypoint": "python"}, "entrypoint")):
        with pytest.raises(Invalid) as refused:
            job_specs(b.run_spec(**written), images=fixed)
        assert [(problem.path, bool(problem.hint)) for problem in refused.value.problems] == [(path, True)]


def test_a_service_has_one_replica_unless_it_says_otherwise() -> None:
    service: dict[str, Any] = {"type": "service", "port": 80, "commands": ["serve"]}
    for written, want in (({}, (1, 1)), ({"replicas": 2}, (2, 2))):
        replicas: Any = effective(b.run_spec(**service, **written)).configuration.replicas  # type: ignore[union-attr]
        assert (replicas.min, replicas.max) == want
