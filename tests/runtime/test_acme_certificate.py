"""The server's own certificate by ACME: when it is ordered, what a failure costs, what is kept. No clock but ours."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from chalicelib.domain.instants import SECOND
from chalicelib.engine.certificate_authority import (
    AuthorityAccount,
    OrderState,
    PlacedOrder,
    SignedCertificate,
    Unregistered,
)
from chalicelib.errors import DstackError, Throttled, Transient
from chalicelib.runtime.acme_certificate import CHALLENGES, FIRST_RETRY, AcmeCertificate, PlainEntrance
from chalicelib.runtime.tls import name_in
from tests.harness.pebble import made_certificate
from tests.runtime.test_asgi import Client


async def nobody(message: object) -> None:
    raise AssertionError("the connection itself is written to")


HOST, DAY = "dstack.example.com", 86_400.0


@dataclass
class Authority:
    """Signs at the second question; each call may fail with what `fails` says next. Its signature is self-made."""

    directory: str = "https://authority.example.com/dir"
    now: float = 1_800_000_000.0
    fails: list[DstackError | None] = field(default_factory=list)
    invalid: str = ""
    calls: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)  # what it got when it asked
    certificate: AcmeCertificate | None = None
    _key: str = ""

    def new_key(self) -> str:
        return made_certificate("account")[1]

    def register(self, key: str) -> str:
        self._note("register")
        return "https://authority.example.com/account/1"

    def order(self, account: AuthorityAccount, host: str, key: str) -> PlacedOrder:
        self._note("order")
        return PlacedOrder("https://authority.example.com/order/1", "https://challenge", "tok", "tok.thumb")

    def answer(self, account: AuthorityAccount, order: str) -> OrderState:
        self._note("answer")
        assert self.certificate is not None
        self.told = dict(self.certificate.answers)
        return OrderState("pending")

    def check(self, account: AuthorityAccount, order: str) -> OrderState:
        raise AssertionError("the server only collects")

    def collect(self, account: AuthorityAccount, order: str, host: str, key: str) -> OrderState | SignedCertificate:
        self._note("collect")
        if self.invalid:
            return OrderState("invalid", self.invalid)
        if self.calls.count("collect") % 2:
            return OrderState("processing")
        return SignedCertificate(signed_by_another(host, key, self.now), round(self.now) * SECOND, 0)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.fails and (error := self.fails.pop(0)) is not None:
            raise error

    def keeper(self, folder: Path) -> AcmeCertificate:
        self.certificate = AcmeCertificate(self, HOST, folder, now=lambda: self.now, pause=self._pause)
        return self.certificate

    def _pause(self, seconds: float) -> bool:
        self.now += seconds
        return False


def signed_by_another(host: str, key: str, now: float) -> str:
    """A chain for this key that isn't signed by itself; valid for 90 days."""
    own = load_pem_private_key(key.encode(), None)
    ca, ca_key = (part.encode() for part in made_certificate("authority"))
    issuer = x509.load_pem_x509_certificate(ca).subject
    since = datetime.fromtimestamp(now, UTC)
    made = x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]))
    made = made.issuer_name(issuer).public_key(own.public_key()).serial_number(x509.random_serial_number())  # type: ignore[arg-type]
    made = made.not_valid_before(since).not_valid_after(since + timedelta(days=90))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    signed = made.sign(load_pem_private_key(ca_key, None), hashes.SHA256())  # type: ignore[arg-type]
    return signed.public_bytes(Encoding.PEM).decode()


def test_it_is_got_once_and_renewed_after_two_thirds_of_its_life(tmp_path: Path) -> None:
    authority = Authority()
    keeper = authority.keeper(tmp_path)
    stand_in = keeper.context
    keeper.keep()
    assert authority.calls == ["register", "order", "answer", "collect", "collect"]
    assert authority.told == {"tok": "tok.thumb"} and keeper.answers == {}
    assert keeper.context is not stand_in and name_in(tmp_path / f"{HOST}.pem") == HOST
    first, authority.calls = keeper.context, []
    authority.now += 59 * DAY
    keeper.keep()
    assert authority.calls == [] and keeper.context is first
    authority.now += 2 * DAY
    keeper.keep()
    assert authority.calls == ["order", "answer", "collect", "collect"]
    assert keeper.context is not first  # type: ignore[comparison-overlap]


def test_another_authority_is_asked_at_once(tmp_path: Path) -> None:
    """As after a first try with an authority for tests, whose certificates nobody trusts."""
    Authority("https://tests.example.com/dir").keeper(tmp_path).keep()
    authority = Authority(fails=[None, Transient("away")])
    keeper = authority.keeper(tmp_path)
    before = keeper.context
    keeper.keep()
    assert authority.calls == ["register", "order"] and keeper.context is before
    authority.now += 2 * FIRST_RETRY
    keeper.keep()
    assert authority.calls[2:] == ["order", "answer", "collect", "collect"] and keeper.context is not before
    authority.keeper(tmp_path).keep()
    assert len(authority.calls) == 6


def test_the_next_server_finds_it(tmp_path: Path) -> None:
    authority = Authority()
    authority.keeper(tmp_path).keep()
    authority.calls = []
    authority.keeper(tmp_path).keep()
    assert authority.calls == []
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_failures_are_tried_again_ever_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(fails=[Transient("It is down.")])
    keeper = authority.keeper(tmp_path)
    for tries in range(1, 4):
        authority.fails = [Transient("It is down.")]
        keeper.keep()
        authority.now += FIRST_RETRY * 2 ** (tries - 1) - 1
        keeper.keep()
        assert len(authority.calls) == tries and len(caplog.records) == tries
        authority.now += 2
    assert "trying again in 4 minutes: It is down." in caplog.text
    keeper.keep()
    assert authority.calls[-1] == "collect"


def test_an_authority_that_says_when_is_left_alone_until_then(tmp_path: Path) -> None:
    authority = Authority(fails=[Throttled("Too many.", retry_after=3000)])
    keeper = authority.keeper(tmp_path)
    keeper.keep()
    authority.now += 2990
    keeper.keep()
    assert authority.calls == ["register"]
    authority.now += 20
    keeper.keep()
    assert authority.calls[-1] == "collect"


def test_a_host_that_the_authority_cant_reach_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(invalid="Connection refused.")
    authority.keeper(tmp_path).keep()
    assert f"didn't get what it asked of {HOST} at port 80: Connection refused." in caplog.text
    assert authority.certificate is not None and authority.certificate.answers == {}


def test_an_account_that_is_forgotten_is_made_anew(tmp_path: Path) -> None:
    authority = Authority()
    authority.keeper(tmp_path).keep()
    authority.now += 80 * DAY
    authority.calls, authority.fails = [], [Unregistered("Who?")]
    authority.keeper(tmp_path).keep()
    assert authority.calls == ["order", "register", "order", "answer", "collect", "collect"]
    other = Authority(directory="https://other.example.com/dir", now=authority.now + 80 * DAY)
    other.keeper(tmp_path).keep()
    assert other.calls[0] == "register"


def test_the_plain_entrance_answers_the_authority_and_sends_others_to_https(tmp_path: Path) -> None:
    keeper = Authority().keeper(tmp_path)
    keeper.answers["tok"] = "tok.thumb"
    app = PlainEntrance(keeper, "https://dstack.example.com")

    def ask(path: str, query: bytes = b"", method: str = "GET") -> Client:
        client = Client()
        scope = {"method": method, "path": path, "raw_path": path.encode(), "query_string": query, "headers": []}
        asyncio.run(app({**scope, "type": "http", "state": {"connection": client}}, client.receive, nobody))
        return client

    assert (ask(CHALLENGES + "tok").status, ask(CHALLENGES + "tok").answer) == (200, b"tok.thumb")
    assert ask(CHALLENGES + "other").status == 404
    sent = ask("//evil.example.com/a", b"b=c")
    assert (sent.status, sent.headers[b"location"]) == (308, b"https://dstack.example.com//evil.example.com/a?b=c")
