"""Shared connections: one for all, and twenty hosts behind one head node set up at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from chalicelib.domain.instances import InstanceStatus
from chalicelib.errors import Transient
from chalicelib.hosts import install
from chalicelib.hosts.connection import SshLogins
from chalicelib.hosts.inspection import OWNER, SHORT
from chalicelib.hosts.shared_connections import Shared
from chalicelib.planning.machines.hosts import ADD_HOST, workflow_of
from chalicelib.store import nouns
from tests.harness.server import until
from tests.hosts.hosts_behind import hosts_behind
from tests.hosts.test_host_steps import INSTALL_ID, Bench
from tests.world import nouns as b

MANY = 20
PATIENCE = 120.0


class FakeTransport:
    def __init__(self) -> None:
        self.open = True

    def is_active(self) -> bool:
        return self.open

    def close(self) -> None:
        self.open = False


def test_the_first_opens_it_and_the_last_closes_it() -> None:
    made: list[FakeTransport] = []

    def opened(key: str) -> FakeTransport:
        made.append(FakeTransport())
        return made[-1]

    shared = Shared(opened)
    one, other, own = shared.take("head"), shared.take("head"), shared.take("head", alone=True)
    assert one.it is other.it is made[0] and own.it is made[1]
    assert shared.take("another").it is made[2]
    shared.leave(own)
    shared.leave(one)
    assert [transport.open for transport in made] == [True, False, True]
    shared.leave(other)
    assert not made[0].open
    assert shared.take("head").it is made[3], "and the next opens it anew"
    made[3].close()
    assert shared.take("head").it is made[4], "as whoever finds it broken does"


def test_all_who_wait_hear_why_there_is_none() -> None:
    opened_keys, begun, refuse = [], threading.Event(), threading.Event()

    def opened(key: str) -> FakeTransport:
        opened_keys.append(key)
        begun.set()
        assert refuse.wait(PATIENCE)
        raise Transient("no answer")

    shared = Shared(opened)
    with ThreadPoolExecutor(MANY) as threads:
        takes = [threads.submit(shared.take, "head")]
        assert begun.wait(PATIENCE)
        takes += [threads.submit(shared.take, "head") for _ in range(MANY - 1)]
        until("all to wait", lambda: all(take.running() for take in takes))
        until("all to have it", lambda: shared._shares["head"].users == MANY)
        refuse.set()
        for take in takes:
            with pytest.raises(Transient, match="no answer"):
                take.result(PATIENCE)
    assert opened_keys == ["head"]
    with pytest.raises(Transient):
        shared.take("head")
    assert opened_keys == ["head", "head"], "whoever comes later tries again"


@pytest.mark.slow
def test_many_hosts_behind_a_head_node_are_set_up_at_once_over_one_login_each() -> None:
    names = [f"h{number}" for number in range(MANY)]
    with hosts_behind(*names) as site:
        ssh, together = SshLogins(keep_open=10 * PATIENCE), threading.Barrier(MANY)

        def added(name: str) -> Bench:
            bench = Bench(site.hosts[name])
            bench.performer = replace(bench.performer, logins=ssh, login_of=lambda _: site.login(name))
            for step in ADD_HOST.steps:
                if not step.when:
                    together.wait(PATIENCE)
                    bench.performer.do(step.name, workflow_of(bench.instance, ADD_HOST, bench.clock.now()))
            return bench

        with ThreadPoolExecutor(MANY) as threads:
            benches = list(threads.map(added, names))
        assert len(site.head) == 1, "one login at the head node for all"
        assert len(site.behind) == MANY, "and one at each host for all its steps"
        until("nothing to be left open", lambda: not any(each.is_active() for each in (*site.head, *site.behind)))
    for bench in benches:
        assert bench.host.running and bench.host.files[install.PROGRAM] == b"the agent"
        assert bench.contact is not None and len(bench.contact.shown) == 2


def test_a_host_that_is_away_keeps_nobody_from_the_others() -> None:
    with hosts_behind("here") as site:
        ssh = SshLogins()
        with ssh.connect(site.login("here")) as connection:
            with pytest.raises(Transient, match="the jump host can't reach it"), ssh.connect(site.login("away")):
                raise AssertionError
            with ssh.connect(site.login("here")):
                assert len(site.head) == 2, "one for all, and one that said why the other can't be reached"
            assert "end=yes" in connection.run(SHORT).out


@pytest.mark.slow
def test_a_way_that_breaks_costs_a_login_and_is_made_anew() -> None:
    with hosts_behind("here") as site:
        ssh = SshLogins()
        for number in range(1, 4):
            with ssh.connect(site.login("here")) as connection:
                assert "end=yes" in connection.run(SHORT).out and len(site.head) == number
                site.head[-1].close()
                until("the break to be seen", lambda: not connection.transport.is_active())
                with pytest.raises(Transient, match="the connection broke"):
                    connection.run(SHORT)
        assert not ssh._heads._shares, "nothing is kept of those that broke"


def test_a_host_that_was_claimed_is_known_as_ours_on_the_same_login() -> None:
    with hosts_behind("here") as site:
        bench = Bench(site.hosts["here"])
        gone = b.host(7, b.fleet("gone"), status=InstanceStatus.terminated)
        bench.store.commit([nouns.put(gone.with_(version=0))])
        bench.host.files[OWNER] = f"{INSTALL_ID}/{gone.id}".encode()
        ssh = SshLogins(keep_open=10 * PATIENCE)
        bench.performer = replace(bench.performer, logins=ssh, login_of=lambda _: site.login("here"))
        for step in ("look", "install", "stop", "clear"):
            bench.performer.do(step, bench.workflow())
        assert len(site.behind) == 1 and bench.host.files == {}
