"""A machine that nobody can log in to joins a fleet by a pasted line, and leaves it without a trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.hosts import snapshot, stubs
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.onprem.lab import Lab, lab
from tests.e2e.onprem.test_ssh_fleet_real import as_it_was
from tests.harness.server import until

BY_ITSELF = {"type": "fleet", "name": "lab", "ssh_config": {"hosts": []}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Machines that reach the server, which has no way to them."""
    specs = [HostSpec("roamer"), HostSpec("bare", docker=False, stubs=(stubs.no_engine(),))]
    with lab(tmp_path_factory.mktemp("lab"), specs, workers_reach_plane=True) as one:
        one.apply(BY_ITSELF)
        yield one


def line(site: Lab, *flags: str) -> str:
    return site.server.cli("fleet", "join-command", "lab", *flags).splitlines()[0]


def joins(site: Lab) -> list[str]:
    return [row.split()[1] for row in site.server.cli("fleet", "joins", "lab").splitlines()[1:]]


def test_a_machine_joins_works_and_is_taken_out_by_the_server(site: Lab) -> None:
    host = site.site.host("roamer")
    before = snapshot.take(host)
    with pytest.raises(OSError, match="unreachable"):
        site.site.control.connect((host.address, 22))
    pasted = line(site)
    assert "This machine is lab-0 now" in host.ssh(pasted).stdout
    assert site.statuses("lab") == {"roamer": "idle"}
    assert "hello done" in site.apply(site.task("hello", "echo hello", "lab"))
    assert "Refused: this command was used for lab-0" in host.ssh(pasted, check=False).stderr
    site.server.cli("fleet", "delete", "lab", "-i", "0", "-y")
    until("the machine to be out", lambda: site.statuses("lab") == {})
    as_it_was(host, before)


def test_what_it_lacks_is_named_together_and_the_command_stays_good(site: Lab) -> None:
    bare = site.site.host("bare")
    bare.write("/var/lib/dstack/owner", "elsewhere/one", 0o600)
    before = snapshot.take(bare)
    done = bare.ssh(line(site), check=False)
    assert done.returncode == 1
    assert "there is no Docker Engine (to fix it: curl" in done.stderr
    assert "it belongs to another dstack server (installation elsewhere)" in done.stderr
    assert "The command is still good" in done.stderr and joins(site)[-1] == "unused"
    as_it_was(bare, before)


def test_a_revoked_command_is_refused_and_a_machine_leaves_by_itself(site: Lab) -> None:
    host = site.site.host("roamer")
    before = snapshot.take(host)
    made = site.server.call("/api/project/main/fleets/create_join", {"name": "lab"})
    site.server.cli("fleet", "revoke-join", "lab", made["id"])
    refused = host.ssh(made["command"], check=False)
    assert refused.returncode == 1 and "this command was revoked" in refused.stderr
    host.ssh(line(site))
    site.apply(site.task("long", "sleep 600", "lab"), "-d")
    until("it to run", lambda: list(site.statuses("lab").values()) == ["busy"])
    busy = host.ssh("sudo python3 /var/lib/dstack/agent.pyz leave", check=False)
    assert busy.returncode == 1 and "jobs still run here (1)" in busy.stderr
    site.server.cli("stop", "long", "-y")
    until("it to be free", lambda: list(site.statuses("lab").values()) == ["idle"])
    assert "nothing of the agent is left" in host.ssh("sudo python3 /var/lib/dstack/agent.pyz leave").stdout
    until("the machine to be out", lambda: site.statuses("lab") == {})
    as_it_was(host, before)
