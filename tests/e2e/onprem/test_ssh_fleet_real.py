"""SSH fleets on real hosts behind a head node: added, used, changed, removed without a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.e2e.hosts import snapshot, stubs
from tests.e2e.hosts.host import Host
from tests.e2e.hosts.spec import HostSpec, workers
from tests.e2e.onprem.lab import Lab, lab
from tests.harness.server import until
from tests.harness.streams import Stream
from tests.runtime.live import run_of


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three workers that reach nothing but the head, so their agents are carried over SSH."""
    with lab(tmp_path_factory.mktemp("lab"), workers(3)) as one:
        yield one


def as_it_was(host: Host, before: snapshot.Snapshot) -> None:
    """Every file, process, unit, key, container and network, once the last login has ended."""
    found: list[list[str]] = []

    def same() -> bool:
        found.append(before.changes(snapshot.take(host)))
        return not found[-1]

    with contextlib.suppress(AssertionError):
        until("the last login to end", same, every=0.5)
    assert found[-1] == []


def echoed(site: Lab) -> bool:
    """Streams go over the SSH connection that carries the agent; one that isn't read stops no other."""
    assert site.server.process is not None

    def opened() -> Stream:
        return Stream(site.server.url, site.server.token, "long", "port:8000", within=site.server.process.pid)

    if run_of(site.server, "long")["status"] != "running":
        return False
    with opened() as stuck, opened() as stream:
        with contextlib.suppress(TimeoutError):
            stuck.sock.settimeout(0.5)
            while not stream.closed and not stuck.closed:
                stuck.send(bytes(2**20))
        stream.send(b"hello")
        return stream.exactly(5) == b"hello"


def test_a_fleet_from_its_first_host_to_its_last_leaves_no_trace(site: Lab) -> None:
    w1, w2, w3 = site.site.workers
    before = {host.name: snapshot.take(host) for host in (w1, w2, w3)}

    output = site.apply(site.fleet("lab", [w1, w2]))
    assert site.statuses("lab") == {w1.address: "idle", w2.address: "idle"}
    for host in (w1, w2):
        for step in ("log in and look at the host", "install the agent", "start the agent"):
            assert f"{host.address}: {step}" in output
        restarts = host.systemctl("show", "--property=NRestarts", "--value", "dstack-agent")
        assert restarts == "0", "its agent knew the way when it started"

    ran = site.apply(site.task("hello", "echo hello from $(hostname)", "lab"))
    assert "hello from" in ran and "hello done" in ran

    site.apply(site.fleet("lab", [w1, w2, w3]))
    assert site.statuses("lab") == {host.address: "idle" for host in (w1, w2, w3)}, "a host is added in place"

    site.apply(site.task("long", "nc -ll -p 8000 -e cat & sleep 600", "lab"), "-d")
    (busy,) = until("it to run", lambda: [one for one in site.instances("lab") if one["status"] == "busy"])
    until("it to listen in its network", lambda: echoed(site))
    remaining = [host for host in (w1, w2, w3) if host.address != busy["hostname"]]
    refused = site.apply(site.fleet("lab", remaining), check=False)
    assert f"The host {busy['hostname']} is in use by the run long." in refused
    site.server.cli("stop", "long", "-y")
    until("the host to be free", lambda: site.statuses("lab")[busy["hostname"]] == "idle")

    site.apply(site.fleet("lab", [w1, w3]))
    until("w2 to be cleared", lambda: w2.address not in site.statuses("lab"))
    as_it_was(w2, before["w2"])

    site.delete("lab")
    for host in (w1, w3):
        as_it_was(host, before[host.name])


def test_a_host_comes_back_after_a_reboot_and_is_removed_when_it_is_back(site: Lab) -> None:
    w1, w2, _ = site.site.workers
    before = snapshot.take(w2)
    site.apply({**site.fleet("lab", [w1, w2]), "placement": "cluster"})
    w2.reboot()
    named = {"instances": [{"hostname": w1.address}]}
    ran = site.apply(site.task("again", "echo again", "lab", **named))
    assert "again done" in ran
    until("its agent to be back", lambda: not any(one["unreachable"] for one in site.instances("lab")))
    w2.unplug()
    site.server.cli("fleet", "delete", "lab", "-y")
    until("the other host to be cleared", lambda: site.statuses("lab") == {w2.address: "terminating"})
    w2.plug()
    until("the fleet to be gone", lambda: site.gone("lab"))
    as_it_was(w2, before)


def test_a_host_is_in_one_fleet_only(site: Lab) -> None:
    w1, w2, _ = site.site.workers
    site.apply(site.fleet("one", [w1]))
    output = site.apply(site.fleet("two", [w1, w2]), check=False)
    (refused,) = [one for one in site.instances("two") if one["hostname"] == w1.address]
    assert refused["status"] == "terminated"
    assert "it belongs to fleet one (instance one-0)" in refused["termination_reason_message"]
    assert "it belongs to fleet one (instance one-0)" in " ".join(output.split())
    assert site.statuses("two")[w2.address] == "idle", "one bad host holds up no other"
    assert site.statuses("one") == {w1.address: "idle"}, "and takes nothing from whom it belongs to"
    site.delete("two")
    site.delete("one")


def test_another_host_key_is_refused_and_the_host_can_be_forgotten(site: Lab) -> None:
    *_, w3 = site.site.workers
    site.apply(site.fleet("lab", [w3]))
    w3.new_host_key()
    site.server.cli("fleet", "delete", "lab", "-y")

    def events() -> str:
        return site.server.cli("event", "--within-fleet", "lab")

    until("the refusal", lambda: "shows a different host key than at first contact" in events())
    assert events().count("SHA256:") >= 2, "both fingerprints"
    assert site.statuses("lab") == {w3.address: "terminating"}
    site.delete("lab", "--force")


ODD = [
    HostSpec("good"),
    HostSpec("cautious", sudo="password"),
    HostSpec("bare", docker=False, stubs=(stubs.no_engine(), stubs.clock("+10m"))),
    HostSpec("shut", forwarding=False),
]


def test_what_hosts_lack_is_named_for_all_of_them_at_once(
    tmp_path: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with lab(tmp_path_factory.mktemp("odd"), ODD, workers_reach_plane=True) as one:
        good, cautious, bare, shut = one.site.workers
        before = {host.name: snapshot.take(host) for host in (cautious, bare, shut)}
        output = " ".join(one.apply(one.fleet("lab", one.site.workers), check=False).split())
        lacking = {i["hostname"]: i["termination_reason_message"] for i in one.instances("lab")}
        assert "sudo asks ubuntu for a password" in lacking[cautious.address]
        assert "there is no Docker Engine" in lacking[bare.address]
        assert "its clock is 10 minutes ahead of the server's" in lacking[bare.address]
        assert "AllowTcpForwarding yes" in lacking[shut.address]
        for reason in ("sudo asks ubuntu for a password", "there is no Docker Engine", "forbids forwarding"):
            assert reason in output
        assert one.statuses("lab")[good.address] == "idle"
        assert "hello done" in one.apply(one.task("hello", "echo hello", "lab"))
        for host in (cautious, bare, shut):
            as_it_was(host, before[host.name])

        cautious.write("/etc/sudoers.d/dstack", "ubuntu ALL=(ALL) NOPASSWD:ALL\n", 0o440)
        output = one.apply(one.fleet("lab", one.site.workers), check=False)
        assert one.statuses("lab")[cautious.address] == "idle", f"mended, and applied again: {output}"
