"""A server that can't hold connections to hosts, and workers that reach only their head node: that relays their calls,
and nothing is left there when they are gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.hosts import snapshot
from tests.e2e.hosts.host import Host
from tests.e2e.hosts.network import HEAD
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.lab import Lab, lab
from tests.e2e.onprem.test_ssh_fleet_real import as_it_was
from tests.harness.server import until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), workers(2), carries=False) as one:
        yield one


def listening(head: Host) -> list[str]:
    """Where its relay listens."""
    rows = head.systemctl("list-sockets", "--plain", "--no-legend", "dstack-relay-*").splitlines()
    return [row.split()[0] for row in rows]


def test_the_head_node_relays_the_calls_of_its_workers(site: Lab) -> None:
    head, (w1, w2) = site.site.head, site.site.workers
    head.run("rmdir", "/etc/systemd/system/sockets.target.wants")  # where nothing is in it, systemctl deletes it
    before = {host.name: snapshot.take(host) for host in (head, w1, w2)}

    output = site.apply(site.fleet("lab", [w1, w2]))
    assert site.statuses("lab") == {w1.address: "idle", w2.address: "idle"}
    assert f"{w1.address}: have the head node relay its calls" in output
    assert "hello done" in site.apply(site.task("hello", "echo hello", "lab"))

    (relay,) = listening(head)
    address, _, port = relay.partition(":")
    assert address == "198.18.1.1", "its inner address"
    with pytest.raises(ConnectionRefusedError):
        site.site.control.connect((HEAD, int(port)))

    (unit,) = head.systemctl("list-sockets", "--plain", "--no-legend", "dstack-relay-*").split()[1:2]
    assert head.systemctl("is-enabled", unit) == "enabled", "it comes back after a reboot"

    site.apply(site.fleet("lab", [w1]))
    until("w2 to be cleared", lambda: w2.address not in site.statuses("lab"))
    as_it_was(w2, before["w2"])
    assert listening(head) == [relay], "another host uses it"

    site.delete("lab")
    for host in (w1, head):
        as_it_was(host, before[host.name])
