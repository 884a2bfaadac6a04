"""The genuine client's gateways against our server. That client knows no `fleet`: for it, hosts are the backend
`remote`, and their fleet is the region. The fleet here has no host yet, so nothing listens on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.peer import Peer
from tests.harness.server import Server, until

DOOR = "type: gateway\nname: door\nbackend: remote\nregion: edge\ndomain: '*.example.test'\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("server") / "home", flags=("--no-local-fleet",))
    one.home.mkdir()
    try:
        one.start()
        fleet = {"configuration": {"type": "fleet", "name": "edge", "ssh_config": {"hosts": []}}, "profile": {}}
        one.call("/api/project/main/fleets/apply", {"plan": {"spec": fleet}, "force": False})
        yield one
    finally:
        one.close()


def write(peer: Peer, text: str, name: str = "door.dstack.yml") -> str:
    (peer.home / name).write_text(text)
    return name


def gateways(server: Server) -> dict[str, Any]:
    return {each["name"]: each for each in server.call("/api/project/main/gateways/list", {})}


def test_what_it_applies_is_a_gateway_on_the_fleets_hosts(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-d", "-f", write(peer, DOOR + "certificate: null\nreplicas: 2\n"))
    made = gateways(server)["door"]
    assert (made["backend"], made["region"], made["wildcard_domain"]) == ("remote", "edge", "example.test")
    header, row = [row for row in peer.run("gateway", "list").rows() if row][:2]
    assert header == ["NAME", "BACKEND", "HOSTNAME", "DOMAIN", "DEFAULT", "STATUS"]
    assert row[:2] == ["door", "ssh (edge)"] and "example.test" in row
    shown = peer.json("gateway", "get", "door", "--json")
    assert (shown["name"], shown["default"], shown["configuration"]["region"]) == ("door", True, "edge")


def test_the_same_file_changes_nothing(peer: Peer, server: Server) -> None:
    before = gateways(server)["door"]["id"]
    peer.run("apply", "-y", "-d", "-f", write(peer, DOOR + "certificate: null\nreplicas: 2\n"))
    assert gateways(server)["door"]["id"] == before


def test_its_domain_changes_in_place(peer: Peer, server: Server) -> None:
    before = gateways(server)["door"]["id"]
    text = DOOR.replace("example.test", "example.org") + "certificate: null\nreplicas: 2\n"
    peer.run("apply", "-y", "-d", "-f", write(peer, text))
    after = gateways(server)["door"]
    assert (after["id"], after["wildcard_domain"]) == (before, "example.org")
    peer.run("gateway", "update", "door", "--domain", "example.net")
    assert gateways(server)["door"]["wildcard_domain"] == "example.net"


def test_a_service_of_its_is_at_the_gateway(peer: Peer, server: Server) -> None:
    text = "type: service\nname: chat\nport: 8000\ncommands: [serve]\ngateway: door\nmodel: my-org/tiny\n"
    peer.run("apply", "-y", "-d", "-f", write(peer, text, "chat.dstack.yml"))
    service = server.call("/api/project/main/runs/get", {"run_name": "chat"})["service"]
    assert (service["url"], service["model"]["base_url"]) == ("http://chat.example.net/", "http://chat.example.net/v1")
    refused = peer.run(
        "apply", "-y", "-d", "-f", write(peer, text.replace("door", "doors"), "chat.dstack.yml"), expect=1
    )
    assert "there is no gateway doors in project main (write `gateway: door`)" in " ".join(refused.text.split())
    peer.run("stop", "-y", "chat")


def test_another_becomes_the_default(peer: Peer, server: Server) -> None:
    other = DOOR.replace("name: door", "name: other") + "certificate: null\n"
    peer.run("apply", "-y", "-d", "-f", write(peer, other, "other.dstack.yml"))
    assert not gateways(server)["other"]["default"]
    peer.run("gateway", "update", "other", "--set-default")
    assert [name for name, each in gateways(server).items() if each["default"]] == ["other"]


def test_what_cant_be_is_said_in_one_line(peer: Peer, server: Server) -> None:
    output = peer.run("apply", "-y", "-d", "-f", write(peer, DOOR.replace("edge", "nowhere")), expect=1).text
    assert "there is no fleet `nowhere` in this project" in " ".join(output.split())


def test_it_is_deleted_and_waited_for(peer: Peer, server: Server) -> None:
    peer.run("gateway", "delete", "-y", "other")
    peer.run("delete", "-y", "-f", write(peer, DOOR))
    until("both to be gone", lambda: not gateways(server))
