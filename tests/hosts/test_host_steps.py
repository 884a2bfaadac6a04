"""The steps of hosts: whatever goes wrong at whatever step, a host is in the fleet or as it was found."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.contacts import Contact
from chalicelib.domain.instances import InstanceStatus, OnPrem
from chalicelib.domain.workflows import Driver, Workflow, WorkflowStatus
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import NotYet, Transient, Unfit
from chalicelib.hosts import install
from chalicelib.hosts.connection import HostLogin, Ran
from chalicelib.hosts.host_steps import QUIET, STARTED, HostSteps
from chalicelib.hosts.inspection import OWNER
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST, workflow_of
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from tests.engine.workflow_kit import Fault, check, faults
from tests.hosts.fake_host import KEY, FakeHost
from tests.world import nouns as b
from tests.world.time import Clock

LOGIN = HostLogin("h1", 22, "ubuntu", "a key")
INSTALL_ID = "install"


class Bench:
    """A host of a fleet whose agent has reported."""

    def __init__(self, host: FakeHost | None = None, *, has_reported: bool = True) -> None:
        self.host, self.store, self.clock = host or FakeHost(), MemoryStore(), Clock()
        pending = {"status": InstanceStatus.pending, "started_at": None, "idle_since": None}
        on_prem = OnPrem(hostname="h1", port=22)
        self.instance = b.host(0, b.fleet("lab"), host=on_prem, due_at=self.clock.now(), **pending)
        made: list[Any] = [self.instance]
        if has_reported:
            made.append(b.presence_of(self.instance, facts=b.host_facts()))
        self.store.commit([nouns.put(noun) for noun in made])
        self.performer = HostSteps(
            self.store,
            self.clock,
            self.host,
            lambda _: LOGIN,
            INSTALL_ID,
            b"k" * 32,
            "http://plane",
            lambda: b"the agent",
        )

    @property
    def subject_label(self) -> dict[str, str]:
        return {"subject": f"instance/{self.instance.id}"}

    @property
    def owner(self) -> bytes:
        return f"{INSTALL_ID}/{self.instance.id}".encode()

    @property
    def contact(self) -> Contact | None:
        return nouns.find(self.store, Contact, keys.contact(self.instance.id))

    @property
    def noted(self) -> bool:
        """Is a tunnel wanted for it?"""
        return self.contact is not None and self.contact.tunnel

    def workflow(self, **changes: Any) -> Workflow:
        return workflow_of(self.instance, ADD_HOST, self.clock.now()).with_(**changes)

    def left(self) -> object:
        return copy.deepcopy((self.host.files, self.host.running))


def test_a_host_is_set_up() -> None:
    bench = Bench()
    check(ADD_HOST, bench, None, **bench.subject_label)
    files = bench.host.files
    assert bench.host.running and files[install.PROGRAM] == b"the agent" and files[OWNER] == bench.owner
    assert files[install.TOKEN].decode() == bootstrap_token(b"k" * 32, bench.instance.id, 0)
    assert f"--server http://plane --data {install.HOME}".encode() in files[install.UNIT_FILE]


def test_an_agent_is_installed_and_started_with_one_login() -> None:
    bench = Bench()
    done = bench.performer.do("install", bench.workflow())
    assert bench.host.running and done == {STARTED: "yes"}
    logins = len(bench.host.logins)
    bench.performer.do("start", bench.workflow(state=done))
    assert len(bench.host.logins) == logins


# Nobody relays these hosts' calls: for those that need it see test_relays.py.
@pytest.mark.parametrize("fault", [fault for fault in faults(ADD_HOST) if fault.step != "relay"], ids=str)
@pytest.mark.parametrize("driver", Driver)
def test_whatever_goes_wrong_it_is_added_or_as_it_was_found(fault: Fault, driver: Driver) -> None:
    bench = Bench(FakeHost(files={"/etc/motd": b"hello"}))
    check(ADD_HOST, bench, fault, driver, **bench.subject_label)


NEVER_UNDONE = ("refused", "refused after", "cancelled", "cancelled after")


@pytest.mark.parametrize("fault", [f for f in faults(REMOVE_HOST) if f.kind not in NEVER_UNDONE], ids=str)
@pytest.mark.parametrize("driver", Driver)
def test_whatever_goes_wrong_it_is_cleared(fault: Fault, driver: Driver) -> None:
    bench = Bench(FakeHost(files={"/etc/motd": b"hello"}))
    before = bench.left()
    check(ADD_HOST, bench, None, **bench.subject_label)
    check(REMOVE_HOST, bench, fault, driver, **bench.subject_label)
    assert bench.left() == before
    assert bench.contact is None


def test_a_host_that_is_away_is_cleared_when_it_is_back() -> None:
    bench = Bench()
    check(ADD_HOST, bench, None, **bench.subject_label)
    bench.host.away = True
    with pytest.raises(Transient, match="no answer"):
        bench.performer.do("stop", bench.workflow())
    bench.host.away = False
    check(REMOVE_HOST, bench, None, **bench.subject_label)
    assert bench.host.files == {}


def test_everything_that_is_missing_is_named_at_once() -> None:
    bench = Bench(FakeHost(lacking={"docker": "", "docker_client": "", "sudo": "password"}))
    with pytest.raises(Unfit, match=r"sudo asks ubuntu for a password .*; there is no Docker Engine"):
        bench.performer.do("look", bench.workflow())
    assert bench.host.files == {}


def test_another_instances_host_is_left_alone() -> None:
    files = {OWNER: b"install/another", install.PROGRAM: b"theirs", install.UNIT_FILE: b"theirs"}
    bench = Bench(FakeHost(files=dict(files), running=True))
    with pytest.raises(Unfit, match="belongs to instance another of this server"):
        bench.performer.do("look", bench.workflow())
    with pytest.raises(Unfit, match="belongs to instance another of this server"):
        bench.performer.do("install", bench.workflow())
    for step in ("start", "install"):
        bench.performer.undo(step, bench.workflow())
    for step in ("stop", "clear"):
        bench.performer.do(step, bench.workflow())
    assert bench.host.files == files and bench.host.running


def test_whoever_has_the_host_is_named_to_those_of_its_project_only() -> None:
    owner = b.host(0, b.fleet("gpus"))
    errors = {}
    for project in (b.PROJECT, "another project"):
        bench = Bench(FakeHost(files={OWNER: f"{INSTALL_ID}/{owner.id}".encode()}))
        bench.store.commit([nouns.put(owner.with_(project_id=project, version=0))])
        with pytest.raises(Unfit) as refused:
            bench.performer.do("look", bench.workflow())
        errors[project] = str(refused.value)
    assert "it belongs to fleet gpus (instance gpus-0)" in errors[b.PROJECT]
    assert "it belongs to a fleet of another project of this server" in errors["another project"]
    assert "gpus" not in errors["another project"] and "another project " in errors["another project"]


def test_a_machine_that_a_fleet_names_twice_is_in_it_once() -> None:
    """Both may look at it before either claims it."""
    bench = Bench()
    twin = b.host(1, b.fleet("lab"), host=OnPrem(hostname="also-h1", port=22))
    bench.store.commit([nouns.put(twin.with_(version=0))])
    found = bench.performer.do("look", bench.workflow())
    bench.host.files[OWNER] = f"{INSTALL_ID}/{twin.id}".encode()
    files = dict(bench.host.files)
    with pytest.raises(Unfit, match=r"this fleet has the same machine as also-h1.* \(to fix it: name it once\)"):
        bench.performer.do("install", bench.workflow(state=dict(found or {})))
    assert bench.host.files == files


def test_what_a_forgotten_instance_left_makes_room() -> None:
    gone = b.host(7, b.fleet("gone"), host=OnPrem(hostname="h1", port=22), status=InstanceStatus.terminated)
    owner = f"{INSTALL_ID}/{gone.id}".encode()
    left = {OWNER: owner, install.UNIT_FILE: b"theirs", f"{install.HOME}/tasks/one": b"theirs", "/etc/motd": b"hello"}
    bench = Bench(FakeHost(files=left, running=True))
    bench.store.commit([nouns.put(gone.with_(version=0))])
    check(ADD_HOST, bench, None, **bench.subject_label)
    assert bench.host.running and bench.host.files[OWNER] == bench.owner
    assert f"{install.HOME}/tasks/one" not in bench.host.files and "/etc/motd" in bench.host.files


def test_first_contact_pins_the_keys() -> None:
    bench = Bench()
    bench.performer.do("look", bench.workflow())
    assert bench.contact is not None and bench.contact.shown == (KEY,)
    assert [login.pinned for login in bench.host.logins] == [""]
    bench.performer.do("start", bench.workflow())
    assert bench.host.logins[-1].pinned == KEY, "from then on the host must show this key"


def test_a_host_that_cant_reach_the_server_gets_a_tunnel() -> None:
    bench, wanted = Bench(FakeHost(reaches=False)), list[bool]()
    bench.performer = replace(bench.performer, tunnel_wanted=lambda: wanted.append(bench.noted))
    found = bench.performer.do("look", bench.workflow())
    state = bench.workflow(state=dict(found or {}))
    bench.performer.do("install", state)
    assert b"--server" not in bench.host.files[install.UNIT_FILE], "the agent reads the address"
    assert bench.host.running and bench.host.files[install.SERVER] == b"http://127.0.0.1:4321", "it finds it at once"
    assert wanted == [True], "whoever keeps tunnels is told once that stands"
    bench.performer.do("install", state)
    assert bench.host.ports == [4321] and bench.noted, "a tunnel that is there has written its own address"
    bench.host.reaches = True
    found = bench.performer.do("look", bench.workflow())
    bench.performer.do("install", bench.workflow(state=dict(found or {})))
    assert not bench.noted and b"--server" in bench.host.files[install.UNIT_FILE]


def test_an_agent_that_is_silent_is_asked_for_its_log() -> None:
    bench = Bench(has_reported=False)
    with pytest.raises(NotYet, match="hasn't reported yet"):
        bench.performer.do("report", bench.workflow())
    assert bench.host.logins == [], "at first nobody logs in for that"
    late = bench.workflow(step_at=bench.clock.now() - QUIET)
    with pytest.raises(NotYet, match="its log ends with: nothing"):
        bench.performer.do("report", late)


def test_a_look_that_was_cut_off_proves_nothing() -> None:
    bench = Bench()
    bench.performer = replace(bench.performer, logins=CutOff(bench.host))
    with pytest.raises(Transient, match="cut short"):
        bench.performer.do("look", bench.workflow())


@dataclass
class CutOff:
    """A host whose connection breaks during the look."""

    host: FakeHost

    @contextmanager
    def connect(self, login: HostLogin, *, again: bool = False) -> Iterator[Any]:
        with self.host.connect(login) as connection:
            connection.run = lambda *_, **__: Ran(0, "uid=0\nsudo=yes\n", "")  # type: ignore[method-assign]
            yield connection


def test_a_cancelled_workflow_is_undone() -> None:
    bench = Bench()
    course = check(ADD_HOST, bench, Fault("cancelled after", "start"), **bench.subject_label)
    assert course.workflow.status is WorkflowStatus.undone
