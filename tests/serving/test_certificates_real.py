"""A gateway's certificates by a real authority: its nginx answers Pebble, and shows what that has signed. Only the time
between two renewals is virtual."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from chalicelib.domain.certificates import CertificateStatus
from chalicelib.domain.instants import SECOND
from chalicelib.identity.acme import Acme
from chalicelib.planning.gateways.certificates import renewal
from chalicelib.usecases.services import certificates
from tests.harness.pebble import Pebble, pebble
from tests.harness.server import until
from tests.serving.caller import Caller
from tests.serving.door import Replica, Visitor, service
from tests.serving.nginx_door import DOMAIN, NginxDoor, installed
from tests.world.certificates import Stage

HOST = f"app.{DOMAIN}"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxDoor]:
    installed()
    made = NginxDoor(tmp_path_factory.mktemp("gateway"), tls=True)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def authority(door: NginxDoor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pebble]:
    with pebble(tmp_path_factory.mktemp("pebble"), door.address[1]) as made:
        yield made


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.stop()


class Gateway:
    """It is told what the control plane says, with each turn, and the control plane works meanwhile."""

    def __init__(self, door: NginxDoor, authority: Pebble, replica: Replica, *hosts: str) -> None:
        self.door, self.stage = door, Stage()
        self.stage.authority = Acme(authority.directory, authority.ca)  # type: ignore[assignment]
        self.stage.hosts = hosts
        self.services = [service((replica,), name=host.partition(".")[0]) for host in hosts]

    def turn(self) -> certificates.GatewayCertificates:
        place = self.stage.place
        current = certificates.gateway_certificates(place.plane, place.again(self.stage.gateway), self.stage.hosts)
        self.door.serve(*self.services, certificates=current.certificates, challenges=current.challenges)
        self.stage.report(current.unconfirmed)
        place.at += SECOND
        self.stage.settle()
        return current

    def shows(self, host: str, root: str) -> str:
        """The number of the certificate that a client sees who trusts that authority; empty: none that it trusts."""
        self.turn()
        with Caller(self.door.secure) as caller:
            context = ssl.create_default_context(cadata=root)
            try:
                with context.wrap_socket(caller.socket, server_hostname=host) as secured:
                    return str((secured.getpeercert() or {})["serialNumber"])
            except ssl.SSLError:
                return ""


def test_hosts_are_certified_and_certified_again_while_requests_go_on(
    door: NginxDoor, authority: Pebble, replica: Replica
) -> None:
    root = authority.root()
    gateway = Gateway(door, authority, replica, HOST, f"other.{DOMAIN}")
    assert gateway.shows(HOST, root) == ""
    first = until("a certificate", lambda: gateway.shows(HOST, root))
    other = until("another host's", lambda: gateway.shows(f"other.{DOMAIN}", root))
    assert first != other
    assert Visitor(door, gateway.services[0]).ask("/echo").status == 200
    pair = gateway.stage.certificate(HOST).pair
    assert pair is not None
    gateway.stage.place.at = renewal(pair) - 100 * SECOND
    gateway.turn()  # which is used; not its time yet
    assert gateway.shows(HOST, root) == first
    gateway.stage.place.at = renewal(pair)
    statuses = []

    def renewed() -> bool:
        statuses.append(Visitor(door, gateway.services[0]).ask("/echo").status)
        return gateway.shows(HOST, root) not in (first, "")

    until("the next", renewed)
    assert set(statuses) == {200}
    renewed_pair = gateway.stage.certificate(HOST).pair
    assert renewed_pair is not None and renewed_pair.key != pair.key


def test_a_host_without_a_record_is_refused_in_the_authoritys_words(
    door: NginxDoor, authority: Pebble, replica: Replica
) -> None:
    host = f"nowhere.{DOMAIN}"
    authority.knows(host, "127.0.0.9")  # where nothing listens
    gateway = Gateway(door, authority, replica, host)

    def refused() -> bool:
        gateway.turn()
        found = gateway.stage.found(host)
        return found is not None and found.failures == 1

    until("a refusal", refused)
    waits = gateway.stage.certificate(host)
    assert waits.status is CertificateStatus.waiting
    assert f"http://{host}/.well-known/acme-challenge/" in waits.message and "refused" in waits.message
    assert f"See that {host} has a DNS record with the gateway's address" in waits.message
    assert Visitor(door, gateway.services[0]).ask("/echo").status == 200  # by http, as before
    authority.knows(host, "127.0.0.1")
    assert waits.due_at is not None
    gateway.stage.place.at = waits.due_at
    assert until("its certificate", lambda: gateway.shows(host, authority.root()))
