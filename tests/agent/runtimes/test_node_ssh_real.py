"""The nodes of a job log in to each other: real sshd, real client, plain processes at addresses of the loopback."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.process import ProcessRuntime
from chalicelib.agent.sessions.logins import LOGGING_IN_MOST
from tests.agent.attempt import Attempt, addresses
from tests.agent.runtime_conformance import Workshop
from tests.agent.session_conformance import HOLD, sleeping
from tests.agent.ssh_client import key_pair
from tests.harness.debian import NotHere, ssh_server
from tests.harness.mpi import mpirun, on_each_node


@pytest.fixture(scope="session", autouse=True)
def _sshd() -> None:
    ssh_server()


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path / "data", ProcessRuntime())
    yield workshop
    workshop.end()


def test_a_node_reaches_the_others_by_address_and_by_name(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    attempt.start(1)
    there, name = attempt.addresses[1], attempt.names[1]
    identity = "echo $RANK $USER $(id -un) $(pwd)"
    script = (
        f"echo here $(id -un); ssh {there} '{identity}'; ssh {name} 'cat; exit 3' < $DSTACK_MPI_HOSTFILE; echo $?; "
        f"echo text > sent; scp -q sent {name}:got && ssh {name} cat got; grep -c . $DSTACK_MPI_HOSTFILE"
    )
    here, seen, *remaining = attempt.output_of(0, script).splitlines()
    rank, user, named, where = seen.split()
    assert (rank, user) == ("1", named) and where.startswith("/")
    assert remaining == [*attempt.addresses, "3", "text", "2"]
    assert os.getuid() != 0 or here != f"here {named}", "each node has a user of its own, and both are on their list"


def test_where_jobs_are_the_agents_own_user_that_users_files_are_left_alone(workshop: Workshop) -> None:
    workshop.roster = workshop.new_roster("agent")
    attempt = Attempt(workshop, addresses(2))
    attempt.start(1)
    name = attempt.names[1]
    output = attempt.output_of(
        0, f"ssh {name} 'echo $RANK'; echo a > a; scp -q a {name}:b && ssh {attempt.addresses[1]} cat b"
    )
    assert output.split() == ["1", "a"]
    assert not (Path.home() / ".ssh/dstack_job").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs jobs as somebody else")
def test_a_number_that_the_host_lists_as_nobody_reaches_the_others_too(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    attempt.start(1)
    task = workshop.start(
        f"ssh {attempt.names[1]} 'echo at $RANK' 2>&1; id -u", **attempt.spec(0), user="64321", user_permitted=True
    )
    workshop.exited(task)
    assert workshop.log(task).decode().split() == ["at", "1", "64321"]


def test_only_the_nodes_of_this_attempt_get_in(workshop: Workshop, tmp_path: Path) -> None:
    """Not another run of the same hosts, not the next attempt, not the run's user by the nodes' port."""
    places = addresses(2)
    attempt = Attempt(workshop, places)
    key, public = key_pair(tmp_path / "keys", "user")
    attempt.ready(workshop.start(HOLD, **attempt.spec(1), authorized_keys=[public]))
    (place, port), name = [(node["address"], node["port"]) for node in attempt.node_ssh(1)["nodes"]][1], "train-1-0"
    for other in (Attempt(workshop, places), Attempt(workshop, places, run_name="other")):
        spec = other.spec(0)
        spec["node_ssh"]["nodes"][1] = {"name": name, "address": place, "port": port}
        spec["node_ssh"]["host_public_key"] = attempt.node_ssh(0)["host_public_key"]
        task = workshop.start(f"ssh {name} echo in 2>&1; echo $?", **spec)
        workshop.exited(task)
        output = workshop.log(task).decode()
        assert "Permission denied" in output and output.split()[-1] == "255", output
    login = f"ssh -F /dev/null -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -i {key}"
    assert (
        "Permission denied" in os.popen(f"{login} -o UserKnownHostsFile=/dev/null -p {port} root@{place} 2>&1").read()
    )


def test_the_key_is_for_the_job_only_and_goes_with_it(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    task = workshop.start("stat -c '%a %U' ~/.ssh ~/.ssh/dstack_job; echo $HOME; cat", **attempt.spec(0))
    workshop.says(task, b"/home")
    modes, home = workshop.log(task).decode().split("\r\n")[:2], Path(workshop.log(task).decode().split()[-1])
    assert [line.split()[0] for line in modes] == ["700", "600"]
    assert "PRIVATE" in (home / ".ssh/dstack_job").read_text()
    other = workshop.start(f"cat {home}/.ssh/dstack_job {home}/.ssh/config")
    assert workshop.exited(other)["exit_status"] == (1 if os.getuid() == 0 else 0)
    assert os.getuid() != 0 or b"PRIVATE" not in workshop.log(other)
    folder = workshop.roster.folder(task)
    workshop.roster.abort(task)
    workshop.exited(task)
    workshop.roster.end_logins([task])
    workshop.until(lambda: workshop.roster.over(task), task)
    workshop.started.remove(task)
    workshop.roster.remove(task)
    assert not home.exists() and not Path(folder.path).exists()


def test_a_taken_port_is_told_and_the_job_runs(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    node = attempt.node_ssh(0)["nodes"][0]
    with socket.create_server((node["address"], node["port"])):
        task = attempt.start(0, "echo works; " + HOLD)
    workshop.says(task, b"works")
    why = f"port {node['port']} of {node['address']}: Address already in use"
    assert workshop.state(task)["message"] == f"the other nodes can't reach this one by ssh: {why}"


def test_who_connects_and_says_nothing_takes_no_nodes_place(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    attempt.start(1)
    node, stranger = attempt.node_ssh(1)["nodes"][1], addresses(1)[0]
    place = (node["address"], node["port"])
    with contextlib.ExitStack() as held:
        silent = [
            held.enter_context(socket.create_connection(place, timeout=120, source_address=(stranger, 0)))
            for _ in range(LOGGING_IN_MOST + 1)
        ]
        assert silent.pop().recv(9) == b"", "the last is turned away at once"
        assert attempt.output_of(0, f"ssh {attempt.names[1]} 'echo $RANK'") == "1\n"


def test_a_node_that_ends_ends_its_sessions(workshop: Workshop) -> None:
    attempt = Attempt(workshop, addresses(2))
    ends = attempt.start(1)
    session = f"ssh {attempt.names[1]} 'echo i''n; exec sleep 7643'"
    stays = attempt.start(0, f"{session}; echo over $?; ssh {attempt.names[1]} true; echo late $?; {HOLD}")
    workshop.says(stays, b"in\r\n")
    workshop.until(lambda: sleeping("7643"), stays)
    workshop.roster.stop(ends, 1)
    workshop.exited(ends)
    workshop.says(stays, b"late 255")
    assert b"over 0" not in workshop.log(stays)
    workshop.until(lambda: not sleeping("7643"), stays)
    assert not workshop.state(stays).get("connections"), "nor does anybody count them"


@pytest.mark.parametrize("shared", [False, True])
def test_mpirun_starts_a_process_on_each_node_of_the_hostfile(workshop: Workshop, shared: bool) -> None:
    """Also where both are at one address, as on a local fleet: there the hostfile has names."""
    try:
        program = mpirun()
    except NotHere as problem:
        pytest.skip(str(problem))
    places = addresses(2)
    attempt = Attempt(workshop, [places[0]] * 2 if shared else places)
    attempt.start(1)
    ranks = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on node $RANK"
    output = attempt.output_of(0, on_each_node(program, 2, ranks))
    assert {"rank 0 of 2 on node 0", "rank 1 of 2 on node 1"} <= set(output.splitlines()), output
