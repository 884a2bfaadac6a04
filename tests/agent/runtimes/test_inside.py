"""A container's own agent keeps the runtimes' contract, one task a container; here each has a folder in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.runtimes import inside
from chalicelib.agent.runtimes.cgroups import OwnGroup
from chalicelib.agent.runtimes.inside import InsideRuntime
from chalicelib.domain import container_script
from tests.agent.runtime_conformance import RuntimeConformance, Workshop, kill_supervisor, seconds, sleepers


class Containers(Workshop):
    """Each task gets a container of its own."""

    def start(self, script: str, **spec: Any) -> str:
        if self.started:
            self.end()
            self.started.clear()
            (self.data / inside.STATUS).unlink()
        return super().start(script, **spec)


@pytest.mark.slow
class TestInsideRuntime(RuntimeConformance):
    @pytest.fixture
    def workshop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
        """The environment and the working folder of this process stand for those of the image."""
        monkeypatch.delenv("SECRET_OF_THE_AGENT")
        secrets = {"DSTACK_TOKEN": "secret", "PROVIDER_KEY": "secret", container_script.HIDDEN: "ANOTHER PROVIDER_KEY"}
        for name, value in {"HOME": str(tmp_path / "home"), "IMAGE": "its own", **secrets}.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "home").mkdir()
        (tmp_path / "image").mkdir()
        monkeypatch.chdir(tmp_path / "image")
        workshop = Containers(tmp_path / "agent", InsideRuntime())
        yield workshop
        workshop.end()

    def test_the_task_is_at_home_in_its_image(self, workshop: Workshop, tmp_path: Path) -> None:
        task = workshop.start('echo "$HOME $PWD $IMAGE <$DSTACK_TOKEN$PROVIDER_KEY$DSTACK_HIDDEN>"')
        workshop.exited(task)
        assert workshop.log(task).decode().strip() == f"{tmp_path}/home {tmp_path}/image its own <>"

    def test_what_the_spec_says_counts_more_than_the_image(self, workshop: Workshop, tmp_path: Path) -> None:
        spec = {"env": {"IMAGE": "mine"}, "home_dir": str(tmp_path), "working_dir": "below"}
        task = workshop.start('echo "$HOME $PWD $IMAGE"', **spec)
        workshop.exited(task)
        assert workshop.log(task).decode().strip() == f"{tmp_path} {tmp_path}/image/below mine"

    def test_a_container_is_for_one_task(self, workshop: Workshop) -> None:
        task = workshop.start("sleep 60")
        workshop.running(task)
        workshop.roster.create("another", {"commands": ["true"], "id": "another"}, [])
        assert "made for another task" in workshop.state("another")["message"]
        workshop.roster.remove("another")
        assert workshop.state(task)["state"] == "running"

    def test_the_status_of_the_removed_task_is_what_the_container_ends_with(self, workshop: Workshop) -> None:
        data = str(workshop.data)
        task = workshop.start("exit 7")
        workshop.exited(task)
        assert inside.read_status(data) is None, "the server may not know yet"
        workshop.roster.remove(task)
        assert inside.read_status(data) == 7 and inside.taken(data, "next")

    def test_a_killed_supervisor_ends_the_task(self, workshop: Workshop) -> None:
        long = seconds()
        task = workshop.start(f"sleep {long}")
        workshop.running(task)
        kill_supervisor(workshop, task)
        workshop.roster.launch(task, workshop.fetch)
        state = workshop.exited(task)
        assert (state["reason"], "supervisor was killed" in state["message"]) == ("executor_error", True)
        assert not sleepers(long)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "no commands"),
        ({"commands": ["true"], "docker": True}, "has no engine"),
        ({"commands": ["true"], "volumes": [{"kind": "folder"}]}, "only its provider mounts"),
        ({"commands": ["true"], "shm_bytes": 1 << 60}, "shm_size"),
    ],
)
def test_what_only_the_provider_could_have_done_is_refused(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(inside.TaskError) as problem:
        inside.check(spec)
    assert reason in problem.value.message


def test_the_task_gets_no_setting_of_its_agent() -> None:
    of_provider = set(container_script.settings("", "", "", "", {}))
    of_script = set(re.findall(r"\bDSTACK_[A-Z0-9_]+\b", container_script.SCRIPT))
    (unset,) = re.findall(r"^unset (.*)$", container_script.SCRIPT, re.MULTILINE)
    assert unset == f"DSTACK_TOKEN ${{{container_script.HIDDEN}-}}", "nor is it left to the first process"
    assert of_provider | of_script | {"DSTACK_AGENT_TOKEN", "DSTACK_AGENT_FACTS"} == set(inside.SETTINGS)


def test_the_agents_folder_is_the_first_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    blocked, free, other = (str(tmp_path / name) for name in ("file/x", "free", "other"))
    assert inside.data_folder((blocked, free, other)) == free
    assert not Path(other).exists()
    with pytest.raises(OSError, match=r"file/x.*mount one at /dstack"):
        inside.data_folder((blocked,))


def test_where_the_agents_folder_may_be() -> None:
    assert inside.data_candidates({"DSTACK_DATA": "/given", "HOME": "/h"}) == (
        "/given",
        "/dstack/dstack-agent",
        "/tmp/dstack-agent",
        "/dev/shm/dstack-agent",
        "/h/dstack-agent",
    )
    assert inside.data_candidates({})[-1] == "/dstack-agent"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_containers_group_in_version_2(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    write(tmp_path, {"proc/self/cgroup": "0::/\n", f"{group}/cgroup.procs": "", f"{group}/memory.current": "5000\n"})
    write(tmp_path, {f"{group}/memory.stat": "anon 1\ninactive_file 400\n", f"{group}/cpu.stat": "usage_usec 77\n"})
    write(tmp_path, {f"{group}/memory.events": "oom 1\noom_kill 2\n"})
    found = OwnGroup(str(tmp_path))
    assert found.usage() == {"cpu": 77, "memory": 5000, "idle": 400}
    assert not found.out_of_memory(), "that was before"
    write(tmp_path, {f"{group}/memory.events": "oom 1\noom_kill 3\n"})
    assert found.out_of_memory()


def test_the_containers_group_in_version_1_whose_path_is_the_hosts(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/docker/abc\n"})
    group = "sys/fs/cgroup"
    write(tmp_path, {f"{group}/memory/cgroup.procs": "", f"{group}/memory/memory.usage_in_bytes": "900\n"})
    write(tmp_path, {f"{group}/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n"})
    write(
        tmp_path, {f"{group}/cpuacct/docker/abc/cgroup.procs": "", f"{group}/cpuacct/docker/abc/cpuacct.usage": "9000"}
    )
    found = OwnGroup(str(tmp_path))
    assert found.usage() == {"cpu": 9, "memory": 900, "idle": 100}
    assert OwnGroup(str(tmp_path / "none")).usage() == {}
