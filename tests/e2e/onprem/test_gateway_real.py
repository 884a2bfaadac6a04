"""A gateway on hosts of an SSH fleet: it takes requests for services there, goes on without the server, and leaves
nothing but Debian's packages."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from chalicelib.agent.gateway.relays import FRESH
from chalicelib.agent.gateway.role import folder_of
from chalicelib.hosts.inspection import HOME
from chalicelib.hosts.install import UNIT
from tests.e2e.hosts import snapshot
from tests.e2e.hosts.host import Host
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.lab import SMALL, Lab, lab
from tests.e2e.onprem.test_ssh_fleet_real import as_it_was
from tests.harness.images import BUSYBOX
from tests.harness.server import until
from tests.serving.nginx_door import installed

DOMAIN = "example.test"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two workers that reach nothing but the head, so their agents' calls, and the gateway's, are carried over SSH."""
    installed()  # hosts have this machine's programs
    with lab(tmp_path_factory.mktemp("lab"), workers(2)) as one:
        yield one


def requested(by: Host, of: Host, name: str, path: str = "/", token: str = "") -> tuple[int, str]:
    """What a client on one host gets of the gateway on another, or over loopback on its own. 0: no answer."""
    place = "127.0.0.1" if by is of else of.address
    given = {"Host": f"{name}.{DOMAIN}"} | ({"Authorization": f"Bearer {token}"} if token else {})
    with suppress(OSError, http.client.HTTPException), by.namespace.connect((place, 80), 60.0) as sock:
        connection = http.client.HTTPConnection(place)
        connection.sock = sock
        connection.request("GET", path, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    return 0, ""


def gateway(site: Lab) -> dict[str, Any]:
    found: dict[str, Any] = site.server.call("/api/project/main/gateways/get", {"name": "door"})
    return found


def listed(site: Lab) -> list[str]:
    return [each["name"] for each in site.server.call("/api/project/main/gateways/list", {})]


def test_a_gateway_on_a_host_takes_requests_and_leaves_no_trace(site: Lab) -> None:
    w1, w2 = site.site.workers
    before = snapshot.take(w1)
    site.apply(site.fleet("lab", [w1, w2]))
    made = {"type": "gateway", "name": "door", "fleet": "lab", "domain": DOMAIN, "certificate": None}
    output = site.apply(made)
    assert "door" in output and gateway(site)["status"] == "running"
    until("nginx to answer, which knows no service", lambda: requested(w2, w1, "nobody")[0] == 403)
    assert "nginx.conf" in w1.run("ls", folder_of(HOME)).stdout
    assert w1.systemctl("is-active", "nginx", check=False) != "active", "Debian's own stays off"

    served = {
        **site.task("web", "echo hello > index.html; httpd -f -p 8000", "lab"),
        "type": "service",
        "port": 8000,
        "auth": False,
        "https": False,
    }
    assert served["image"] == BUSYBOX
    site.apply(served, "-d")
    until("the service behind the gateway", lambda: requested(w2, w1, "web") == (200, "hello\n"))

    busy = site.server.cli("gateway", "delete", "door", "-y", check=False)
    assert "web" in busy and gateway(site)["status"] == "running", "a service uses it"

    w1.run("pkill", "-KILL", "-f", "agent.pyz --data")  # systemd starts it again; the gateway doesn't notice
    assert requested(w2, w1, "web") == (200, "hello\n")

    output = site.apply({**served, "name": "closed", "auth": True}, "-d")
    assert "The gateway door has no certificate, so callers on other machines can't send tokens" in output
    token = site.server.cli("service", "token", "closed").strip()
    until("the other, for who is on its host", lambda: requested(w1, w1, "closed", token=token) == (200, "hello\n"))
    assert requested(w1, w1, "closed", token=site.server.token)[0] == 200
    for each in (token, site.server.token):
        status, body = requested(w2, w1, "closed", token=each)
        assert status == 403 and "insecure" in body and "`certificate`" in body

    site.server.cli("stop", "web", "closed", "-y")
    until("the services to be gone", lambda: not {"web", "closed"} & set(site.active()))
    until("the gateway to serve it no more", lambda: requested(w2, w1, "web")[0] == 403)
    site.server.cli("gateway", "delete", "door", "-y")
    until("the gateway to be gone", lambda: listed(site) == [])
    assert requested(w2, w1, "web")[0] == 0
    assert not w1.run("ls", folder_of(HOME), check=False).stdout
    site.delete("lab")
    as_it_was(w1, before)


def test_a_host_stays_as_long_as_it_carries_a_gateway(site: Lab) -> None:
    w1, w2 = site.site.workers
    before = snapshot.take(w1)
    site.apply(site.fleet("lab", [w1, w2]))
    site.apply({"type": "gateway", "name": "door", "fleet": "lab", "domain": DOMAIN, "certificate": None})
    refused = site.apply(site.fleet("lab", [w2]), check=False)
    assert f"The host {w1.address} is in use by the gateway door." in refused
    w1.reboot()
    until("the gateway after the boot", lambda: requested(w2, w1, "nobody")[0] == 403)
    site.server.cli("gateway", "delete", "door", "-y")
    until("the gateway to be gone", lambda: listed(site) == [])
    site.delete("lab")
    as_it_was(w1, before)


CALLER = (
    "mkdir cgi-bin && printf '#!/bin/sh\\necho; echo $(hostname) $REMOTE_ADDR\\n' > cgi-bin/who && chmod +x cgi-bin/who"
)
FIREWALL = ("INPUT", "-p", "tcp", "--dport", "8000:29999", "-s")


def test_replicas_in_its_network_are_reached_by_themselves_unless_a_firewall_is_in_between(site: Lab) -> None:
    """Each replica says who called it: its own host, where an agent's stream ends, or the gateway's."""
    w1, w2 = site.site.workers
    site.apply({**site.fleet("lab", [w1, w2]), "placement": "cluster"})
    site.apply({"type": "gateway", "name": "door", "fleet": "lab", "domain": DOMAIN, "certificate": None})
    (place,) = [each["hostname"] for each in gateway(site)["replicas"]]
    near, far = (w1, w2) if place == w1.address else (w2, w1)
    first = "echo ${{ groups[0].replicas[0].IP_ADDRESS }}"  # whoever names another has its host's network
    serve = "httpd -f -p $DSTACK_SERVICE_PORT"
    group = {"name": "web", "replicas": 2, "commands": [first, CALLER, serve], "resources": SMALL}
    common = {"image": BUSYBOX, "shell": "sh", "fleets": ["lab"], "port": 8000, "auth": False, "https": False}
    site.apply({"type": "service", "name": "web", **common, "groups": [group]}, "-d")

    def callers() -> dict[str, set[str]]:
        """By host."""
        answers = [requested(far, near, "web", "/cgi-bin/who") for _ in range(8)]
        bodies = [body.split() for status, body in answers if status == 200]
        seen = [(host, caller.strip("[]").removeprefix("::ffff:")) for host, caller in bodies]
        return {host: {caller for name, caller in seen if name == host} for host, _ in seen}

    def called(*by: str) -> bool:
        return callers().get(far.name) == set(by)

    until("it to be reached by itself", lambda: called(near.address), every=2.0)
    until("the other to be reached, too", lambda: callers().get(near.name) == {"127.0.0.1"}, every=2.0)
    far.run("iptables", "-I", *FIREWALL, near.address, "-j", "DROP")
    until("streams", lambda: called("127.0.0.1"), every=2.0)
    far.run("iptables", "-D", *FIREWALL, near.address, "-j", "DROP")
    until("it to be reached by itself again", lambda: called(near.address), every=2.0)
    site.server.cli("stop", "web", "-y")
    until("the service to be gone", lambda: "web" not in site.active())
    site.server.cli("gateway", "delete", "door", "-y")
    until("the gateway to be gone", lambda: listed(site) == [])
    site.delete("lab")


WHO = "mkdir www && hostname > www/index.html && exec httpd -f -p 8000 -h www"


@pytest.mark.parametrize("death", ["all of it ends", "its network is gone"])
def test_a_host_that_has_just_died_costs_no_request_at_the_gateway_of_another(site: Lab, death: str) -> None:
    w1, w2 = site.site.workers
    site.apply(site.fleet("lab", [w1, w2]))
    made = {"type": "gateway", "name": "door", "fleet": "lab", "domain": DOMAIN, "certificate": None}
    site.apply({**made, "replicas": 2})
    service = {"type": "service", "port": 8000, "auth": False, "https": False, "replicas": 2}
    site.apply({**site.task("web", WHO, "lab"), **service}, "-d")

    def replicas() -> set[str]:
        return {body for status, body in (requested(w1, w1, "web") for _ in range(8)) if status == 200}

    until("both replicas", lambda: len(replicas()) == 2)
    if death == "all of it ends":
        w2.systemctl("stop", UNIT)
        w2.run(
            "sh",
            "-c",
            "docker kill $(docker ps -q); pkill -KILL nginx; pkill -KILL -f 'agent.pyz gateway'",
            check=False,
        )
    else:
        w2.unplug()
        time.sleep(FRESH)  # or the silence couldn't be known from the last answer
    answers = [requested(w1, w1, "web") for _ in range(20)]
    assert {status for status, _ in answers} == {200} and len(set(answers)) == 1, answers
    if death == "all of it ends":
        w2.systemctl("start", UNIT)
    else:
        w2.plug()
    site.server.cli("stop", "web", "-x", "-y")
    until("the service to be gone", lambda: "web" not in site.active())
    site.server.cli("gateway", "delete", "door", "-y")
    until("the gateway to be gone", lambda: listed(site) == [])
    site.delete("lab")
