"""Checks of hosts when a fleet is applied: refusals before anything is stored, and changes of existing hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import HOUR
from chalicelib.domain.tenants import Project, User
from chalicelib.engine.read import FleetRow
from chalicelib.errors import Refused
from chalicelib.planning.machines.hosts import hosts_of
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.usecases.machines import fleet_plans, fleets
from chalicelib.usecases.machines.hosts import MOST_HOSTS, problems, refuse_busy
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.people import users
from tests.hosts.bad_host import KEY
from tests.world import nouns as b
from tests.world.engine import Engine

SSH: dict[str, Any] = {
    "user": "ubuntu",
    "ssh_key": {"public": "", "private": KEY},
    "hosts": ["h1", "10.0.0.7", "fd00::7"],
}


def refused(**changes: Any) -> list[str]:
    found = problems(b.fleet_spec(ssh_config={**SSH, **changes}))
    return [f"{'.'.join(map(str, [each.path]))}: {each.message}" for each in found]


def test_names_and_addresses_are_accepted() -> None:
    assert refused() == []
    assert (
        refused(user="first.last", proxy_jump={"hostname": "jump.example.com", "user": "svc-1", "identity_file": ""})
        == []
    )


def test_a_fleet_has_so_many_hosts() -> None:
    """Each is an instance and a workflow, and one call answers with them all."""
    assert refused(hosts=[f"h{number}" for number in range(MOST_HOSTS)]) == []
    (problem,) = refused(hosts=[f"h{number}" for number in range(MOST_HOSTS + 1)])
    assert "1001 hosts, and a fleet has at most 1000" in problem


def test_a_host_needs_a_key_of_its_own_or_of_all() -> None:
    (problem,) = refused(ssh_key=None, hosts=["h1"])
    assert "no private key to log in to" in problem


def test_a_host_is_listed_once() -> None:
    (problem,) = refused(hosts=["h1", {"hostname": "h2", "port": 2200}, {"hostname": "h1", "port": 22}, "h2"])
    assert problem == "configuration.ssh_config.hosts.2: h1 is listed twice (also as number 0)"


def test_a_host_needs_a_user_of_its_own_or_of_all() -> None:
    (found,) = problems(
        b.fleet_spec(ssh_config={**SSH, "user": None, "hosts": ["h1", {"hostname": "h2", "user": "me"}]})
    )
    assert (found.path, found.message) == ("configuration.ssh_config.hosts.0.user", "no user to log in to h1 with")
    assert (found.hint, found.code) == ("set `user` in `ssh_config` or for the host", "missing")


def test_the_way_to_a_host_needs_a_key_that_opens() -> None:
    jump = {"hostname": "j", "user": "me", "identity_file": "", "ssh_key": {"public": "", "private": "nonsense"}}
    (problem,) = refused(proxy_jump=jump)
    assert problem.startswith("configuration.ssh_config.proxy_jump.identity_file: ")


def test_so_does_every_host_of_its_own() -> None:
    host = {"hostname": "h1", "ssh_key": {"public": "", "private": "nonsense"}}
    (problem,) = refused(hosts=["h0", host])
    assert problem.startswith("configuration.ssh_config.hosts.1.")


def test_where_no_hosts_can_be_logged_in_to_it_is_said_how_they_come() -> None:
    (problem,) = problems(b.fleet_spec(ssh_config=SSH), reachable=False)
    assert "can't log in to hosts" in problem.message and "join-command" in (problem.hint or "")
    assert problems(b.fleet_spec(ssh_config={**SSH, "hosts": []}), reachable=False) == []


@pytest.mark.parametrize("bad", ["a b", "h\x1b[2J", "-oProxyCommand=x", "", "x" * 300, "a';rm -rf ~;'", "h\n"])
def test_names_that_arent_are_refused_where_they_stand(bad: str) -> None:
    """People see them on their terminals, and copy them in the commands that errors suggest."""
    at = "configuration.ssh_config"
    host = {"hostname": "h1", "user": "me", "proxy_jump": {"hostname": "j", "user": "me", "identity_file": ""}}
    for changes, path in (
        ({"user": bad}, f"{at}.user"),
        ({"hosts": [{**host, "user": bad}]}, f"{at}.hosts.0.user"),
        ({"proxy_jump": {"hostname": "j", "user": bad, "identity_file": ""}}, f"{at}.proxy_jump.user"),
        (
            {"hosts": [{**host, "proxy_jump": {"hostname": bad or " ", "user": "me", "identity_file": ""}}]},
            f"{at}.hosts.0.proxy_jump.hostname",
        ),
        ({"hosts": [bad or " "]}, f"{at}.hosts.0.hostname"),
    ):
        found = refused(**changes)
        assert any(problem.startswith(f"{path}: ") and "can't be the name of" in problem for problem in found), (
            changes,
            found,
        )
        assert all(problem.isprintable() for problem in found)


@pytest.mark.parametrize(
    ("written", "hint"),
    [("me@h1", "`user`"), ("[fd00::7]", "without brackets"), ("h1:2222", "`port`"), ("h1/", "a name")],
)
def test_what_was_written_with_a_name_is_told_its_place(written: str, hint: str) -> None:
    (found,) = problems(b.fleet_spec(ssh_config={**SSH, "hosts": [written]}))
    assert "can't be the name of a host" in found.message and hint in (found.hint or "")


def test_only_a_host_that_is_left_out_while_a_job_runs_on_it_is_refused() -> None:
    store, run = MemoryStore(), b.run("long")
    store.commit([nouns.put(run)])
    both, one = (b.fleet_spec(ssh_config={"user": "u", "hosts": hosts}) for hosts in (["h1", "h2"], ["h1"]))
    named = hosts_of(both).values()
    there = [b.host(num, host=host) for num, host in enumerate(named)]
    busy = [b.holding(each, b.job(run)) for each in there]
    with pytest.raises(Refused, match="The host h2 is in use by the run long"):
        refuse_busy(store, one, FleetRow(b.fleet(), "", tuple(busy)))
    joined = busy[1].with_(host=there[1].host.with_(joined=True)) if there[1].host else busy[1]
    for row in ((busy[0], there[1]), (busy[0], joined)):
        refuse_busy(store, one, FleetRow(b.fleet(), "", row))


# --- an apply soon after another --------------------------------------------------------------------------------------


@dataclass
class Applies:
    """A fleet of hosts on a store whose indexes show nothing new for an hour."""

    place: Engine
    user: User
    project: Project
    fleet: Fleet = field(init=False)  # as the last apply answered

    @classmethod
    def begun(cls) -> Applies:
        place = Engine.in_memory()
        _, project = first_start(place.plane)
        place.store.max_lag = HOUR
        return cls(place, users.named_user(place.store, "admin"), project)

    def apply(self, *hosts: str) -> dict[str, list[InstanceStatus]]:
        """The fleet's instances as the apply answers, by host."""
        raw = {"configuration": {"type": "fleet", "name": "lab", "ssh_config": {**SSH, "hosts": list(hosts)}}}
        row = fleet_plans.apply_plan(self.place.plane, self.user, self.project, raw, None)
        self.fleet = row.fleet
        there: dict[str, list[InstanceStatus]] = {}
        for each in row.instances:
            there.setdefault(each.hostname, []).append(each.status)
        return there

    def delete(self, num: int) -> None:
        fleets.delete_instances(self.place.plane, self.user, self.project, "lab", [num])


def test_a_host_that_the_index_doesnt_show_yet_isnt_added_once_more() -> None:
    applies = Applies.begun()
    assert applies.apply("h1") == {"h1": ["pending"]}
    assert applies.apply("h1", "h2") == {"h1": ["pending"], "h2": ["pending"]}
    assert applies.apply("h2", "h3") == {"h1": ["terminating"], "h2": ["pending"], "h3": ["pending"]}


def test_one_that_was_just_deleted_is_asked_for_anew() -> None:
    applies = Applies.begun()
    applies.apply("h1")
    applies.delete(0)
    assert applies.apply("h1") == {"h1": ["terminating"]}
    assert applies.fleet.to_add == ("h1:22",), "it waits until it is cleared"
