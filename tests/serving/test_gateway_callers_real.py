"""Whose tokens a gateway takes, from where, and of what it asks the control plane: the real nginx."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = probe.getsockname()[0]
        return address


@pytest.fixture(scope="module", params=["this machine", "another machine"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxDoor]:
    yield from running(tmp_path_factory, "127.0.0.1" if request.param == "this machine" else own_address(), tls=True)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxDoor]:
    """One without a certificate, on another machine."""
    yield from running(tmp_path_factory, own_address(), tls=False)


def running(folders: pytest.TempPathFactory, host: str, *, tls: bool) -> Iterator[NginxDoor]:
    installed()
    door = NginxDoor(folders.mktemp("gateway"), tls=tls, host=host)
    try:
        yield door
    finally:
        door.stop()


def near(gateway: NginxDoor) -> bool:
    return gateway.address[0] == "127.0.0.1"


@pytest.fixture
def served(gateway: NginxDoor, replica: Replica) -> Served:
    return serve(gateway, replica)


def serve(gateway: NginxDoor, replica: Replica, **more: Any) -> Served:
    gateway.empty()
    made = service([replica], **{"auth": True, "model": ServedModel(name="m"), **more})
    gateway.serve(made)
    for token in (TOKEN, SCOPED):
        gateway.allow(token, "main")
    return made


def answer(
    gateway: NginxDoor, host: str, token: str, *, secure: bool = False, path: str = "/echo"
) -> tuple[int, bytes, str | None]:
    """Its status, its body and where it leads; an empty `token` sends none."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    made = HTTPSConnection(*gateway.secure, context=unchecked) if secure else HTTPConnection(*gateway.address)
    given = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        made.request("GET", path, headers={"Host": host, **given})
        found = made.getresponse()
        return found.status, found.read(), found.getheader("Location")
    finally:
        made.close()


def ask(gateway: NginxDoor, host: str, token: str, *, secure: bool = False, path: str = "/echo") -> tuple[int, bytes]:
    return answer(gateway, host, token, secure=secure, path=path)[:2]


@pytest.mark.parametrize("token", [TOKEN, SCOPED])
def test_a_token_is_taken_over_https_and_from_this_machine_only(gateway: NginxDoor, served: Served, token: str) -> None:
    """Whoever's it is, and whatever it is good for."""
    host = gateway.host_of(served)
    assert ask(gateway, host, token, secure=True)[0] == 200
    calls_before = len(gateway.calls)
    status, body = ask(gateway, host, token)
    assert status == (200 if near(gateway) else 403)
    if not near(gateway):
        error = json.loads(body)["detail"][0]
        assert error["code"] == "insecure" and "over https" in error["msg"] and len(gateway.calls) == calls_before
    models, path = gateway.models_of("main")
    status, body = ask(gateway, models, token, path=f"{path}models")
    assert status == (200 if near(gateway) else 403)
    assert near(gateway) or json.loads(body)["error"]["code"] == "insecure", "as OpenAI's clients read it"


def test_whoever_has_sent_no_token_yet_is_led_to_https_and_whoever_has_isnt(
    gateway: NginxDoor, replica: Replica
) -> None:
    host = gateway.host_of(serve(gateway, replica, https=True))
    assert answer(gateway, host, "")[::2] == (308, f"https://{host}/echo")
    status, body, there = answer(gateway, host, SCOPED)
    if near(gateway):
        assert (status, there) == (308, f"https://{host}/echo")
    else:
        assert (status, there) == (403, None)
        assert f"call https://{host}, with a token" in json.loads(body)["detail"][0]["msg"]


def test_without_auth_all_are_led_to_https_and_headers_are_the_applications_own(
    gateway: NginxDoor, replica: Replica
) -> None:
    host = gateway.host_of(serve(gateway, replica, auth=False, https=True))
    assert answer(gateway, host, SCOPED)[::2] == (308, f"https://{host}/echo")
    host = gateway.host_of(serve(gateway, replica, auth=False))
    assert ask(gateway, host, SCOPED)[0] == 200


@pytest.mark.parametrize("https", [True, False], ids=["https", "plain"])
@pytest.mark.parametrize("path", ["/echo", "/v1/chat/completions"])
def test_who_has_no_token_learns_nothing_of_hosts(gateway: NginxDoor, replica: Replica, https: bool, path: str) -> None:
    """One that isn't served answers as one whose service lets nobody in without a token."""
    known = gateway.host_of(serve(gateway, replica, https=True, model=None))
    unknown = "x".join(known)
    for token in ("", "nobody's"):
        answers = [answer(gateway, host, token, secure=https, path=path) for host in (known, unknown)]
        texts = [
            str(answer).replace(f":{gateway.secure[1]}", "").replace(host, "HOST")  # its public port is another here
            for answer, host in zip(answers, (known, unknown), strict=True)
        ]
        assert texts[0] == texts[1] and answers[0][0] in (308, 403)


@pytest.mark.parametrize("token", [TOKEN, SCOPED, ""])
def test_a_gateway_without_a_certificate_asks_nobody_elsewhere_for_a_token(
    elsewhere: NginxDoor, replica: Replica, token: str
) -> None:
    host = elsewhere.host_of(serve(elsewhere, replica))
    before = replica.seen()["requests"]
    status, body = ask(elsewhere, host, token, path="/v1/x")
    assert status == 403 and elsewhere.calls == [] and replica.seen()["requests"] == before + 1
    assert "has no https" in json.loads(body)["error"]["message"] and b"certificate" in body
    models, path = elsewhere.models_of("main")
    assert ask(elsewhere, models, token, path=f"{path}models")[0] == 403


def test_no_verdict_is_kept_for_longer_than_its_token(gateway: NginxDoor, served: Served) -> None:
    host = gateway.host_of(served)

    def rights_calls() -> int:
        before = len(gateway.calls)
        for _ in range(2):
            assert ask(gateway, host, SCOPED, secure=True)[0] == 200
        return len(gateway.calls) - before

    gateway.ends_in = 1000.0
    assert rights_calls() == 1
    gateway.control.forget()
    gateway.ends_in = 0.0  # it ends as this is said
    assert rights_calls() == 2
    gateway.away = True
    assert ask(gateway, host, SCOPED, secure=True)[0] == 503


def test_one_for_services_is_judged_for_each_of_them(gateway: NginxDoor, served: Served, replica: Replica) -> None:
    other = service([replica], name="other", auth=True, model=ServedModel(name="n"))
    gateway.serve(served, other)
    hosts = [gateway.host_of(served), gateway.host_of(other)]
    for host in hosts:
        assert [ask(gateway, host, token, secure=True)[0] for token in (SCOPED, TOKEN)] == [200, 200]
    models, path = gateway.models_of("main")
    assert ask(gateway, models, SCOPED, secure=True, path=f"{path}models")[0] == 200
    runs = {run for token, _, run in gateway.calls if token == SCOPED}
    assert runs == {served.run_id, other.run_id, ""}, "the last for all of the project's"
    assert len([token for token, *_ in gateway.calls if token == TOKEN]) == 1, "a person's own is good for all"


def test_what_cant_be_a_token_is_nobodys(gateway: NginxDoor, served: Served) -> None:
    calls_before = len(gateway.calls)
    assert ask(gateway, gateway.host_of(served), "t\xf6ken", secure=True)[0] == 403
    assert len(gateway.calls) == calls_before


def test_no_token_is_written_anywhere(gateway: NginxDoor, served: Served) -> None:
    ask(gateway, gateway.host_of(served), TOKEN, secure=True)
    ask(gateway, gateway.host_of(served), "refused-" + TOKEN, secure=True)
    folder = Path(gateway.nginx.control).parents[1]
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert files and not any(TOKEN.encode() in each.read_bytes() for each in files)
