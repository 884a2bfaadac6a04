"""The client of certificate authorities against a real one, Pebble: every step, repeated, and what it refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509

from chalicelib.engine.certificate_authority import (
    AuthorityAccount,
    OrderState,
    PlacedOrder,
    SignedCertificate,
    Unregistered,
)
from chalicelib.errors import Gone, InvalidCredentials, Transient, Unfit
from chalicelib.identity.acme import Acme
from tests.harness.pebble import HMAC_KEY, KID, Pebble, made_certificate, pebble
from tests.harness.ports import free_port

HOST = "chat.example.test"
UNREACHABLE = Acme("https://nobody.test/directory")


class Host:
    """A web server that answers challenges, and knows which it was asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.hosts: list[str] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host.hosts.append(self.headers["Host"].partition(":")[0])
                found = host.answers.get(self.path.rpartition("/")[2], "").encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


@pytest.fixture(scope="module")
def authority(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pebble]:
    with pebble(tmp_path_factory.mktemp("pebble"), host.port) as made:
        yield made


@pytest.fixture(scope="module")
def acme(authority: Pebble) -> Acme:
    return Acme(authority.directory, authority.ca)


@pytest.fixture(scope="module")
def account(acme: Acme) -> AuthorityAccount:
    key = acme.new_key()
    return AuthorityAccount(key, acme.register(key))


def decided(acme: Acme, account: AuthorityAccount, order: str) -> OrderState:
    """The order, once the authority has looked."""
    for _ in range(4000):
        seen = acme.check(account, order)
        if seen.state not in ("pending", "processing"):
            return seen
        time.sleep(0.05)
    raise AssertionError("the authority doesn't decide")


def collected(acme: Acme, account: AuthorityAccount, order: str, host: str, key: str) -> SignedCertificate:
    for _ in range(4000):
        found = acme.collect(account, order, host, key)
        if isinstance(found, SignedCertificate):
            return found
        assert found.state in ("ready", "processing", "valid")
        time.sleep(0.05)
    raise AssertionError("the authority doesn't sign")


def test_a_certificate_is_ordered_validated_and_collected(host: Host, acme: Acme, account: AuthorityAccount) -> None:
    key = acme.new_key()
    placed = acme.order(account, HOST, key)
    host.answers[placed.token] = placed.answer
    assert acme.check(account, placed.url) == OrderState("pending")
    acme.answer(account, placed.url)
    assert decided(acme, account, placed.url) == OrderState("ready")
    assert HOST in host.hosts
    signed = collected(acme, account, placed.url, HOST, key)
    own, *others = x509.load_pem_x509_certificates(signed.chain.encode())
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST] and others
    assert signed.since < signed.until


def test_each_step_may_be_repeated(host: Host, acme: Acme, account: AuthorityAccount) -> None:
    key = acme.new_key()
    placed = acme.order(account, "twice.example.test", key)
    host.answers[placed.token] = placed.answer
    before = host.hosts.count("twice.example.test")
    acme.answer(account, placed.url)
    acme.answer(account, placed.url)
    decided(acme, account, placed.url)
    polls = host.hosts.count("twice.example.test") - before
    acme.answer(account, placed.url)
    assert decided(acme, account, placed.url) == OrderState("ready")
    assert host.hosts.count("twice.example.test") - before == polls  # the authority looked no more
    first = collected(acme, account, placed.url, "twice.example.test", key)
    assert collected(acme, account, placed.url, "twice.example.test", key) == first


def test_an_account_is_made_once(acme: Acme, account: AuthorityAccount) -> None:
    assert acme.register(account.key) == account.url


def test_a_host_that_does_not_answer_is_refused_with_the_reason(acme: Acme, account: AuthorityAccount) -> None:
    placed = acme.order(account, "away.example.test", acme.new_key())
    acme.answer(account, placed.url)
    seen = decided(acme, account, placed.url)
    assert seen.state == "invalid" and "404" in seen.error and "away.example.test" in seen.error
    assert acme.answer(account, placed.url) == seen  # nothing brings it back


def test_an_order_that_is_not_there_is_gone(acme: Acme, account: AuthorityAccount, authority: Pebble) -> None:
    with pytest.raises(Gone, match=r"doesn't know|refuses"):
        acme.check(account, authority.directory.replace("/dir", "/my-order/none"))


def test_an_account_that_is_not_there_is_told_apart(acme: Acme, authority: Pebble) -> None:
    stranger = AuthorityAccount(acme.new_key(), authority.directory.replace("/dir", "/my-account/none"))
    with pytest.raises(Unregistered):
        acme.order(stranger, HOST, acme.new_key())


def test_another_key_than_the_one_that_was_signed_is_noticed(host: Host, acme: Acme, account: AuthorityAccount) -> None:
    key = acme.new_key()
    placed = acme.order(account, "other.example.test", key)
    host.answers[placed.token] = placed.answer
    acme.answer(account, placed.url)
    decided(acme, account, placed.url)
    collected(acme, account, placed.url, "other.example.test", key)
    with pytest.raises(Gone, match="another key"):
        acme.collect(account, placed.url, "other.example.test", acme.new_key())


@pytest.mark.parametrize("name", ["under_score.example.test", "*.example.test"], ids=["characters", "wildcard"])
def test_a_name_that_it_does_not_certify_is_refused(acme: Acme, account: AuthorityAccount, name: str) -> None:
    with pytest.raises(Unfit, match="certificate authority"):
        acme.order(account, name, acme.new_key())


def test_an_authority_that_nobody_vouches_for_is_not_spoken_to(authority: Pebble) -> None:
    stranger, _ = made_certificate("127.0.0.1")
    for trusted in ("", stranger):
        with pytest.raises(Transient, match="certificate verify failed"):
            Acme(authority.directory, trusted).register(UNREACHABLE.new_key())


def test_an_authority_that_is_away_is_tried_again() -> None:
    with pytest.raises(Transient, match="doesn't answer as it should"):
        Acme(f"https://127.0.0.1:{free_port()}/dir").register(UNREACHABLE.new_key())


def test_one_that_takes_no_number_is_tried_again_too(host: Host, tmp_path: Path) -> None:
    with (
        pebble(tmp_path, host.port, reject=100) as stubborn,
        pytest.raises(Transient, match="refuses: JWS has an invalid anti-replay nonce"),
    ):
        Acme(stubborn.directory, stubborn.ca).register(UNREACHABLE.new_key())


def test_one_that_knows_its_customers_wants_the_key_it_gave(host: Host, tmp_path: Path) -> None:
    with pebble(tmp_path, host.port, bound=True) as strict:
        plain = Acme(strict.directory, strict.ca)
        with pytest.raises(InvalidCredentials, match="DSTACK_ACME_EAB_KID"):
            plain.register(plain.new_key())
        known = Acme(strict.directory, strict.ca, KID, HMAC_KEY)
        key = known.new_key()
        account = AuthorityAccount(key, known.register(key))
        assert isinstance(known.order(account, HOST, known.new_key()), PlacedOrder)


def test_neither_keys_nor_answers_are_in_what_is_printed() -> None:
    acme = Acme("https://ca", "-----BEGIN", "kid", "a secret")
    assert "secret" not in repr(acme) and "secret" not in repr(AuthorityAccount("a secret", "https://ca/1"))
