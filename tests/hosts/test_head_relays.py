"""Hosts that can't reach a server that holds no connections: their head node relays their calls, or they are told why
it can't."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.instances import Instance, Jump, OnPrem
from chalicelib.errors import Transient, Unfit
from chalicelib.hosts import install
from chalicelib.hosts.connection import HostLogin
from chalicelib.hosts.head_relays import PORTS, HeadRelays
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST
from chalicelib.store import nouns
from tests.engine.workflow_kit import Fault, check, faults
from tests.hosts.fake_host import FakeHost, HeadAndHost
from tests.hosts.test_host_steps import NEVER_UNDONE, Bench

HEAD = HostLogin("head", 22, "ubuntu", "a key")
BEHIND = HostLogin("h1", 22, "ubuntu", "a key", jump=HEAD)
PLANE = "https://plane.example"


class Behind(Bench):
    """A host whose head node alone reaches the server, which carries nobody's calls."""

    def __init__(self, head: FakeHost | None = None, **host: Any) -> None:
        super().__init__(FakeHost(files={"/etc/motd": b"hello"}, reaches=False, **host))
        self.head = head or FakeHost(files={"/etc/motd": b"login node"}, key="ssh-ed25519 AAAAHEAD")
        self.spec: dict[int, HostLogin] = {0: BEHIND}
        self.performer = replace(
            self.performer,
            logins=HeadAndHost(self.head, self.host),
            login_of=self.login_of,
            server_url=PLANE,
            carries_calls=False,
        )

    def login_of(self, instance: Instance) -> HostLogin:
        assert instance.host is not None
        return self.spec[instance.host.spec_num]

    def left(self) -> object:
        return copy.deepcopy((self.host.files, self.host.running, self.head.files))

    @property
    def relayed(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.head.files if "dstack-relay" in path)


def test_its_head_node_relays_its_calls() -> None:
    bench = Behind()
    course = check(ADD_HOST, bench, None, **bench.subject_label)
    assert bench.contact is not None and bench.contact.relay is not None and not bench.contact.tunnel
    host, _, port = bench.contact.relay.address.partition(":")
    assert host == "10.0.0.1" and int(port) in PORTS, "where the host sees it"
    assert bench.host.files[install.VIA].decode() == bench.contact.relay.address
    assert f"--server {PLANE} ".encode() in bench.host.files[install.UNIT_FILE], "whose name TLS checks"
    assert course.workflow.state["relay"] == bench.contact.relay.address
    assert [login.pinned for login in bench.head.logins] == [bench.head.key] * 2


def test_a_host_that_reaches_the_server_needs_nobody() -> None:
    bench = Behind()
    bench.host.reaches = True
    course = check(ADD_HOST, bench, None, **bench.subject_label)
    assert "relay" not in [step for step, _ in course.performer.made]
    assert bench.head.logins == [] and install.VIA not in bench.host.files


@pytest.mark.parametrize("fault", list(faults(ADD_HOST)), ids=str)
def test_whatever_goes_wrong_both_are_set_up_or_as_they_were_found(fault: Fault) -> None:
    bench = Behind()
    check(ADD_HOST, bench, fault, **bench.subject_label)


@pytest.mark.parametrize("fault", [f for f in faults(REMOVE_HOST) if f.kind not in NEVER_UNDONE], ids=str)
def test_whatever_goes_wrong_both_are_cleared(fault: Fault) -> None:
    bench = Behind()
    before = bench.left()
    check(ADD_HOST, bench, None, **bench.subject_label)
    check(REMOVE_HOST, bench, fault, **bench.subject_label)
    assert bench.left() == before and bench.contact is None


def test_the_last_host_takes_the_relay_with_it() -> None:
    head = FakeHost()
    relays = HeadRelays(HeadAndHost(head, FakeHost()), "install", PLANE)
    relay = relays.place(HEAD, "10.0.0.1")
    for instance in ("one", "two", "two"):
        relays.set_up(HEAD, relay, instance)
    units = [path for path in head.files if path.endswith((".socket", ".service"))]
    assert len(units) == 2 and len(head.files) == 4, "they share it"
    for _ in range(2):
        relays.give_up(HEAD, relay, "one")
        assert set(units) < set(head.files)
    for _ in range(2):
        relays.give_up(HEAD, relay, "two")
        assert head.files == {}


def test_each_installation_server_and_address_has_a_relay_of_its_own() -> None:
    logins = HeadAndHost(FakeHost(), FakeHost())
    found = {
        HeadRelays(logins, install_id, url).place(HEAD, address)
        for install_id in ("ours", "theirs")
        for url in (PLANE, "http://plane.example")
        for address in ("10.0.0.1", "fd00::1")
    }
    assert len(found) == 8
    assert {relay.rpartition(":")[0] for relay in found} == {"10.0.0.1", "[fd00::1]"}


@pytest.mark.parametrize(
    ("head", "host", "reason"),
    [
        (
            {"reaches": False},
            {},
            "it can't reach https://plane.example; nor can its head node ubuntu@head (to",
        ),
        ({"lacking": {"sudo": "password"}}, {}, "its head node ubuntu@head can't relay its calls: sudo asks ubuntu"),
        ({"lacking": {"proxyd": ""}}, {}, "can't relay its calls: its systemd has no systemd-socket-proxyd"),
        ({}, {"lacking": {"seen_at": "8.8.8.8"}}, "it sees its head node at 8.8.8.8, where that can't relay"),
        ({}, {"lacking": {"seen_at": ""}}, "where it sees its head node isn't known"),
    ],
)
def test_why_nobody_can_relay_is_said(head: dict[str, Any], host: dict[str, Any], reason: str) -> None:
    bench = Behind(FakeHost(**head), **host)
    before = bench.left()
    with pytest.raises(Unfit) as refused:
        bench.performer.do("look", bench.workflow())
    assert reason in str(refused.value) and PLANE in str(refused.value)
    assert bench.left() == before


def test_a_host_without_a_head_node_is_told_what_it_lacks() -> None:
    bench = Behind()
    bench.performer = replace(bench.performer, logins=bench.host, login_of=lambda _: replace(BEHIND, jump=None))
    with pytest.raises(Unfit, match=r"it can't reach https://plane\.example \(to fix it: let it"):
        bench.performer.do("look", bench.workflow())


def test_a_firewall_in_between_is_named() -> None:
    bench = Behind(relayed=False)
    bench.performer.do("look", bench.workflow())
    bench.performer.do("install", bench.workflow())
    with pytest.raises(Transient, match=r"through its head node at 10\.0\.0\.1:2\d{4} \(refused\); to fix it"):
        bench.performer.do("relay", bench.workflow())
    assert install.VIA not in bench.host.files
    bench.performer.undo("relay", bench.workflow())
    assert bench.relayed == []


def test_a_host_that_is_away_for_good_leaves_nothing_on_its_head_node() -> None:
    bench = Behind()
    check(ADD_HOST, bench, None, **bench.subject_label)
    assert len(bench.relayed) == 3
    bench.host.away = True
    with pytest.raises(Transient, match="no answer"):
        bench.performer.do("stop", bench.workflow())
    assert bench.relayed == []


@pytest.mark.parametrize("moved", [True, False], ids=["another head node", "another key"])
def test_what_was_set_up_is_found_again_when_the_fleet_has_changed(moved: bool) -> None:
    bench = Behind()
    check(ADD_HOST, bench, None, **bench.subject_label)
    jump = replace(HEAD, hostname="new") if moved else replace(HEAD, private_key="a new key")
    bench.spec[1] = replace(BEHIND, jump=jump)
    (stored,) = [nouns.find(bench.store, Instance, bench.instance.place().key)]
    assert stored is not None and stored.host is not None
    changed = OnPrem(hostname="h1", port=22, jump=Jump(hostname="new", port=22, user="ubuntu"), spec_num=1)
    bench.store.commit([nouns.put(stored.with_(host=changed))])
    bench.performer.do("stop", bench.workflow())
    used = bench.head.logins[-1]
    assert (used.hostname, used.private_key) == (("head", "a key") if moved else ("head", "a new key"))
    assert bench.relayed == []
