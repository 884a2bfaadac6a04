"""Containers keep the runtimes' contract, on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.agent.runtimes.docker_client import container_name
from tests.agent.runtime_conformance import NEVER, RuntimeConformance, Workshop, kill_supervisor
from tests.harness import registry
from tests.harness.docker import DockerEngine
from tests.harness.images import BUSYBOX, PYTHON

HELD = "until [ -e /go ]; do sleep 0.05; done"


def let_go(engine: DockerEngine, task: str) -> None:
    """What is HELD in this task's container goes on."""
    command = {"Cmd": ["/bin/sh", "-c", ": > /go"]}
    made = engine.api.call("POST", f"/containers/{container_name(task)}/exec", body=command)
    engine.api.call("POST", f"/exec/{made['Id']}/start", body={"Detach": True})


class TestDockerRuntime(RuntimeConformance):
    @pytest.fixture
    def workshop(self, tmp_path: Path, docker_engine: DockerEngine) -> Iterator[Workshop]:
        runtime = DockerRuntime(str(tmp_path), docker_engine.socket)
        workshop = Workshop(tmp_path, runtime, docker_engine.socket, {"image": BUSYBOX})
        yield workshop
        workshop.end()

    def test_an_unknown_image_is_named(self, workshop: Workshop) -> None:
        state = workshop.exited(workshop.start("true", image="registry.invalid/no/such:1"))
        assert state["reason"] == "creating_container_error"
        assert "registry.invalid/no/such:1" in state["message"]

    def test_a_private_image_that_another_project_pulled_isnt_run(
        self, workshop: Workshop, docker_engine: DockerEngine
    ) -> None:
        login = {"username": "theirs", "password": "hush"}
        with registry.beside(docker_engine.folder.name, 1, "theirs:hush") as image:
            for project, auth, want in (
                ("theirs", login, "exited with status 127"),  # it runs, but has no shell
                ("others", None, "can't be pulled: "),
                ("others", {**login, "password": "guessed"}, "can't be pulled: "),
                ("theirs", None, "exited with status 127"),
            ):
                task = workshop.start("true", image=image, project_id=project, registry_auth=auth)
                assert want in workshop.exited(task)["message"], project
                assert docker_engine.api.image(image)

    def test_whoever_a_job_is_its_end_names_the_command_that_it_came_in(self, workshop: Workshop) -> None:
        for user in ("somebody", "4321:4321"):
            state = workshop.exited(workshop.commands("set -C", "id -u", "exit 6", user=user))
            assert state["message"] == "exited with status 6 in command 3 (`exit 6`)"

    def test_what_a_job_puts_in_the_place_of_the_numbers_says_nothing(self, workshop: Workshop) -> None:
        state = workshop.exited(
            workshop.commands("id -u", "exec 3>/dstack/command; echo 99 >&3", "exec sh -c 'exit 6'")
        )
        assert state["message"].startswith("exited with status 6")

    def test_a_number_that_the_image_doesnt_list_gets_a_name_and_a_home(self, workshop: Workshop) -> None:
        program = "import os, pwd; me = pwd.getpwuid(os.getuid()); print(me.pw_name, me.pw_dir, me.pw_shell)"
        script = f'python3 -c "{program}"; id -un; id -gn; echo $HOME; cd; pwd; echo mine > file; cat file'
        task = workshop.start(script, image=PYTHON, user="4321:4322")
        assert workshop.exited(task)["exit_status"] == 0, workshop.log(task)
        name, home = "dstack-4321", "/home/4321"
        assert workshop.log(task).decode().split() == [name, home, "/bin/sh", name, name, home, home, "mine"]

    def test_limits_and_gpus_reach_the_container(self, workshop: Workshop, docker_engine: DockerEngine) -> None:
        limits = {"memory_bytes": 64 << 20, "cpu": 0.5, "shm_bytes": 8 << 20}
        task = workshop.start("echo =$NVIDIA_VISIBLE_DEVICES=; sleep 600", gpu_devices=["GPU-c", "GPU-d"], **limits)
        workshop.says(task, b"=GPU-c,GPU-d=")
        host = docker_engine.api.container(container_name(task))["HostConfig"]
        assert (host["Memory"], host["NanoCpus"], host["ShmSize"]) == (64 << 20, 500_000_000, 8 << 20)
        assert host["PidsLimit"] in (16384, None), "None: an engine without that controller"
        assert [limit["Name"] for limit in host["Ulimits"]] == ["nofile"]

    def test_out_of_memory_is_said(self, workshop: Workshop) -> None:
        task = workshop.start("exec python3 -c 'x = bytearray(200 << 20)'", image=PYTHON, memory_bytes=32 << 20)
        state = workshop.exited(task)
        assert (state["exit_status"], "memory" in state["message"]) == (137, True)

    def test_privileged(self, workshop: Workshop) -> None:
        task = workshop.start(
            "[ -e /dev/kmsg ] && [ -e /dev/loop-control -o -e /dev/vda -o -e /dev/sda ]", privileged=True
        )
        privileged = workshop.exited(task)["exit_status"]
        task = workshop.start("[ -e /dev/kmsg ]")
        assert (privileged, workshop.exited(task)["exit_status"]) == (0, 1)

    def test_an_image_without_bash_says_so(self, workshop: Workshop) -> None:
        state = workshop.exited(workshop.start("", commands=["/bin/bash", "-i", "-c", "true"], shell="/bin/bash"))
        assert (state["reason"], "set `shell: sh`" in state["message"]) == ("creating_container_error", True)

    def test_a_home_that_the_image_has_not_is_the_users_own(self, workshop: Workshop) -> None:
        script = "id -u; id -g; cd && pwd && echo kept > file && cat file"
        task = workshop.start(script, home_dir="/data/me", user={"username": "somebody"})
        state = workshop.exited(task)
        assert (state["exit_status"], state["username"]) == (0, "somebody")
        assert workshop.log(task).split() == [b"1234", b"1234", b"/data/me", b"kept"]

    def test_an_interactive_shell_is_at_home_on_the_terminal(self, workshop: Workshop) -> None:
        task = workshop.start(
            "", image=PYTHON, commands=["/bin/bash", "-i", "-c", "python3 -c 'import json; print(json.dumps([1]))'"]
        )
        workshop.exited(task)
        assert workshop.log(task) == b"[1]\r\n"

    def test_a_killed_supervisor_loses_no_byte(self, workshop: Workshop, docker_engine: DockerEngine) -> None:
        lines = "while [ $i -lt {} ]; do i=$((i+1)); echo line $i; done"
        task = workshop.start(f"i=0; {lines.format(1000)}; {HELD}; {lines.format(3000)}; echo end; exit 6")
        workshop.says(task, b"line 500\r\n")
        kill_supervisor(workshop, task)
        restarted = workshop.new_roster()
        assert restarted.orphaned(task)
        restarted.launch(task, workshop.fetch)
        let_go(docker_engine, task)
        state = workshop.exited(task)
        assert (state["exit_status"], state["reason"]) == (6, "container_exited_with_error")
        assert workshop.log(task) == b"".join(b"line %d\r\n" % i for i in range(1, 3001)) + b"end\r\n"

    def test_a_container_that_ended_meanwhile_is_read_to_its_end(
        self, workshop: Workshop, docker_engine: DockerEngine
    ) -> None:
        task = workshop.start(f"echo first; {HELD}; echo last; exit 4")
        workshop.says(task, b"first")
        kill_supervisor(workshop, task)
        let_go(docker_engine, task)
        docker_engine.api.call("POST", f"/containers/{container_name(task)}/wait")
        workshop.new_roster().launch(task, workshop.fetch)
        assert workshop.exited(task)["exit_status"] == 4
        assert workshop.log(task) == b"first\r\nlast\r\n"

    def test_a_crashed_engine_costs_no_byte(self, workshop: Workshop, docker_engine: DockerEngine) -> None:
        task = workshop.start("i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo line $i; sleep 0.02; done; exit 6")
        workshop.says(task, b"line 5\r\n")
        docker_engine.kill_and_restart()
        assert workshop.exited(task)["exit_status"] == 6
        assert workshop.log(task) == b"".join(b"line %d\r\n" % i for i in range(1, 151))

    def test_a_container_that_somebody_stopped_isnt_done(self, workshop: Workshop, docker_engine: DockerEngine) -> None:
        task = workshop.start("trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done")
        workshop.says(task, b"up")
        docker_engine.api.call("POST", f"/containers/{container_name(task)}/stop")
        state = workshop.exited(task)
        assert (state["reason"], "`docker stop`" in state["message"]) == ("executor_error", True)
        assert workshop.log(task) == b"up\r\nasked\r\n"

    def test_two_jobs_listen_on_one_port_and_nothing_is_on_the_host(
        self, workshop: Workshop, docker_engine: DockerEngine
    ) -> None:
        script = (
            "import socket, time; there = socket.create_server(('', 8000)); print('up', flush=True); time.sleep(600)"
        )
        tasks = [workshop.start("", image=PYTHON, commands=["python3", "-c", script], ports=[8000]) for _ in range(2)]
        for task in tasks:
            workshop.says(task, b"up")
            found = docker_engine.api.container(container_name(task))
            assert found["NetworkSettings"]["Ports"] == {}

    def test_containers_without_a_task_are_swept(self, workshop: Workshop, docker_engine: DockerEngine) -> None:
        known, lost = workshop.start("sleep 600"), workshop.start("sleep 600")
        workshop.running(known)
        workshop.running(lost)
        workshop.runtime.sweep({known})
        assert docker_engine.api.container(container_name(known)) is not None
        workshop.until(lambda: docker_engine.api.container(container_name(lost)) is None, lost)
        assert workshop.exited(lost)["state"] == "exited"

    def test_stop_ends_a_command_that_doesnt_listen(self, workshop: Workshop) -> None:
        task = workshop.start("", commands=["/bin/sleep", "100"])
        workshop.running(task)
        workshop.roster.stop(task, NEVER)
        assert workshop.exited(task)["reason"] == "terminated_by_user"
