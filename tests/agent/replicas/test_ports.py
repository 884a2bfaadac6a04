"""The ports of replicas that share their host's network: each its own, the service's where it can be had."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.kernel.task_runtime import TaskError
from chalicelib.agent.program.roster import Roster
from chalicelib.agent.replicas.ports import FIRST, LAST, HostPorts
from chalicelib.agent.runtimes.listening import free
from chalicelib.agent.runtimes.process import ProcessRuntime
from tests.harness.ports import free_port


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def ports() -> Iterator[list[HostPorts]]:
    """Those of two agents on one machine, and of a third that comes later."""
    made = [HostPorts(25_000, 25_019) for _ in range(3)]
    yield made
    for each in made:
        for task in list(each._held):
            each.release(task)


def test_the_first_gets_the_services_own_and_the_others_get_others(ports: list[HostPorts], port: int) -> None:
    one, two, _ = ports
    given = [one.assign("a", port), one.assign("b", port), two.assign("c", port), two.assign("d", port)]
    assert given[0] == port and len(set(given)) == 4, given
    assert all(25_000 <= other <= 25_019 and free(other) for other in given[1:])


def test_a_port_on_which_somebody_listens_is_nobodys(ports: list[HostPorts], port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert ports[0].assign("a", port) != port


def test_a_port_is_free_again_once_its_task_has_gone(ports: list[HostPorts], port: int) -> None:
    one, two, _ = ports
    assert one.assign("a", port) == port
    one.release("a")
    assert two.assign("b", port) == port


def test_a_restarted_agent_keeps_what_its_tasks_were_given(ports: list[HostPorts], port: int) -> None:
    one, two, again = ports
    assert one.assign("a", port) == port
    one.release("a")  # as the kernel does when an agent ends
    again.reserve("a", port)
    assert two.assign("b", port) != port
    again.release("a")
    assert two.assign("b", port) == port, "and asked once more for the same task, it gives up what it gave"


def test_it_takes_none_of_the_ports_that_kernels_give_to_connections() -> None:
    assert 1024 <= FIRST < LAST < 32768, "Linux's own begin there"


def test_that_all_are_taken_is_said(ports: list[HostPorts], port: int) -> None:
    one = ports[0]
    for task in range(21):
        one.assign(str(task), port)
    with pytest.raises(TaskError, match=f"port {port} is in use on this host.*all from 25000 to 25019") as refused:
        one.assign("one more", port)
    assert refused.value.reason == "ports_binding_failed"


@pytest.mark.slow
def test_a_replica_is_told_its_port_and_the_record_of_it_outlives_the_agent(tmp_path: Path, port: int) -> None:
    def roster() -> Roster:
        return Roster(str(tmp_path), {"process": ProcessRuntime()}, "process", str, "")

    spec = {"service_port": port, "ports": [port, 1], "env": {"DSTACK_SERVICE_PORT": str(port), "A": "b"}}
    first = roster()
    for task in ("t-1", "t-2"):
        first.create(task, spec, [])
    launches = [first.folder(task).launch() for task in ("t-1", "t-2")]
    given = [launch["host_port"] for launch in launches]
    assert given[0] == port != given[1]
    for launch, own in zip(launches, given, strict=True):
        assert launch["spec"]["env"] == {"DSTACK_SERVICE_PORT": str(own), "A": "b"}
        assert launch["spec"]["ports"] == [1], "its own it has already"
    for task in ("t-1", "t-2"):
        first._ports.release(task)
    second = roster()
    assert second.tasks() == ["t-1", "t-2"]
    second.create("t-3", spec, [])
    assert second.folder("t-3").launch()["host_port"] not in given
    for task in ("t-1", "t-2", "t-3"):
        second.give_up(task, TaskError("executor_error", "enough"))
        second.remove(task)
    third = roster()
    third.create("t-4", spec, [])
    assert third.folder("t-4").launch()["host_port"] == port
    third._ports.release("t-4")


def test_a_task_and_a_container_get_none(tmp_path: Path) -> None:
    class Containers(ProcessRuntime):
        isolation = "container"  # type: ignore[assignment]

    roster = Roster(str(tmp_path), {"process": ProcessRuntime(), "docker": Containers()}, "process", str, "")
    roster.create("task", {"env": {}}, [])
    roster.create("container", {"runtime": "docker", "service_port": 80, "env": {"DSTACK_SERVICE_PORT": "80"}}, [])
    launches = [roster.folder(task).launch() for task in ("task", "container")]
    assert [launch["host_port"] for launch in launches] == [None, None]
    assert launches[1]["spec"]["env"] == {"DSTACK_SERVICE_PORT": "80"}
