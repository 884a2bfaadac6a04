"""Whose tokens a gateway takes, from where, and of what it asks the control plane: the real nginx."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest

from chalicelib.domain.serving import Served, ServedModel
from chalicelib.usecases.services.service_tokens import PREFIX
from tests.serving.door import TOKEN, Replica, service
from tests.serving.nginx_door import NginxDoor, installed

SCOPED = f"{PREFIX}claims.signature"


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica("a")
    yield made
    made.stop()


def own_address() -> str:
    """One of this machine's that isn't loopback: whoever calls there comes from there. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = asked.getsockname()[0]
        return address


@pytest.fixture(scope="module", params=["this machine", "another machine"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxDoor]:
    installed()
    host = "127.0.0.1" if request.param == "this machine" else own_address()
    door = NginxDoor(tmp_path_factory.mktemp("gateway"), tls=True, host=host)
    try:
        yield door
    finally:
        door.stop()


def near(gateway: NginxDoor) -> bool:
    return gateway.address[0] == "127.0.0.1"


@pytest.fixture
def served(gateway: NginxDoor, replica: Replica) -> Served:
    gateway.empty()
    made = service([replica], auth=True, model=ServedModel(name="m"))
    gateway.serve(made)
    for token in (TOKEN, SCOPED):
        gateway.allow(token, "main")
    return made


def ask(gateway: NginxDoor, host: str, token: str, *, secure: bool = False, path: str = "/echo") -> tuple[int, bytes]:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    made = HTTPSConnection(*gateway.secure, context=unchecked) if secure else HTTPConnection(*gateway.address)
    try:
        made.request("GET", path, headers={"Host": host, "Authorization": f"Bearer {token}"})
        answer = made.getresponse()
        return answer.status, answer.read()
    finally:
        made.close()


def test_a_persons_token_is_taken_over_https_and_from_this_machine_only(gateway: NginxDoor, served: Served) -> None:
    host = gateway.host_of(served)
    assert ask(gateway, host, TOKEN, secure=True)[0] == 200
    asked = len(gateway.asked)
    status, body = ask(gateway, host, TOKEN)
    assert status == (200 if near(gateway) else 403)
    if not near(gateway):
        assert b"insecure" in body and b"dstack service token" in body and len(gateway.asked) == asked
    models, path = gateway.models_of("main")
    assert ask(gateway, models, TOKEN, path=f"{path}models")[0] == (200 if near(gateway) else 403)


def test_one_for_services_is_taken_everywhere(gateway: NginxDoor, served: Served) -> None:
    for secure in (True, False):
        assert ask(gateway, gateway.host_of(served), SCOPED, secure=secure)[0] == 200


def test_one_for_services_is_judged_for_each_of_them(gateway: NginxDoor, served: Served, replica: Replica) -> None:
    other = service([replica], name="other", auth=True, model=ServedModel(name="n"))
    gateway.serve(served, other)
    hosts = [gateway.host_of(served), gateway.host_of(other)]
    for host in hosts:
        assert ask(gateway, host, SCOPED)[0] == ask(gateway, host, TOKEN, secure=True)[0] == 200
    models, path = gateway.models_of("main")
    assert ask(gateway, models, SCOPED, path=f"{path}models")[0] == 200
    runs = {run for token, _, run in gateway.asked if token == SCOPED}
    assert runs == {served.run_id, other.run_id, ""}, "the last for all of the project's"
    assert len([token for token, *_ in gateway.asked if token == TOKEN]) == 1, "a person's own is good for all"


def test_what_cant_be_a_token_is_nobodys(gateway: NginxDoor, served: Served) -> None:
    asked = len(gateway.asked)
    assert ask(gateway, gateway.host_of(served), "t\xf6ken", secure=True)[0] == 403
    assert len(gateway.asked) == asked


def test_no_token_is_written_anywhere(gateway: NginxDoor, served: Served) -> None:
    ask(gateway, gateway.host_of(served), TOKEN, secure=True)
    ask(gateway, gateway.host_of(served), "refused-" + TOKEN, secure=True)
    folder = Path(gateway.nginx.control).parents[1]
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert files and not any(TOKEN.encode() in each.read_bytes() for each in files)
