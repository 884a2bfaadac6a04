"""The server's own certificate from an authority that speaks ACME: got at the first start, renewed after two thirds of
its life.

The authority asks for a token over plain HTTP, at port 80 of the host. Until there is a certificate, the server shows
one that it signed itself, so that a failure there is a line of its log and not the end of the start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

from chalicelib.api.dispatch import Reply
from chalicelib.engine.certificate_authority import (
    AuthorityAccount,
    CertificateAuthority,
    PlacedOrder,
    SignedCertificate,
    Unregistered,
)
from chalicelib.errors import DstackError, Throttled, Unfit
from chalicelib.runtime.asgi import DRAIN_SECONDS, AsgiExchange
from chalicelib.runtime.data_folder import private_file
from chalicelib.runtime.tls import load
from chalicelib.serving.ports import Receive, Scope, Send

log = logging.getLogger("dstack.server")

CHECK_EVERY = 60.0  # seconds between two checks whether it is time
FIRST_RETRY, LAST_RETRY = 60.0, 6 * 3600.0  # seconds; authorities limit failed tries by the hour
ASK_EVERY, LONGEST_ORDER = 1.0, 180.0  # seconds between two questions about an order, and until it is given up
STAND_IN_DAYS = 30
CHALLENGES = "/.well-known/acme-challenge/"


class AcmeCertificate:
    """`folder` keeps the account, the certificate and its key."""

    def __init__(
        self,
        authority: CertificateAuthority,
        host: str,
        folder: Path,
        *,
        now: Callable[[], float],
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        """`now`: seconds since the epoch. `pause`: waits, and returns whether to give up."""
        self._authority, self.name, self._folder, self._now = authority, host, folder, now
        self._stopping = Event()
        self._pause = pause or self._stopping.wait
        self.answers: dict[str, str] = {}  # by token: what the authority is told
        self._try_at, self._delay = 0.0, FIRST_RETRY
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{host}.pem"  # one file for both, so that they always fit together
        self._signer = folder / f"{host}.authority"  # whose it is: a certificate of an authority for tests has to go
        if not self._path.exists():
            private_file(self._path, stand_in(host, datetime.fromtimestamp(now(), UTC)))
        self.context = load(self._path, self._path)

    def stop(self) -> None:
        self._stopping.set()

    def keep(self) -> None:
        """Get a certificate if it is time."""
        if self._now() < self._try_at or not self._is_due():
            return
        try:
            signed = self._obtain()
        except DstackError as problem:
            wait = max(self._delay, problem.retry_after if isinstance(problem, Throttled) else 0)
            self._try_at, self._delay = self._now() + wait, min(LAST_RETRY, self._delay * 2)
            log.error("no certificate for %s; trying again in %d minutes: %s", self.name, wait // 60, problem)
            return
        self._delay = FIRST_RETRY
        if signed is not None:
            log.info("new connections get a certificate for %s", self.name)

    def _is_due(self) -> bool:
        from cryptography import x509

        if not self._signer.exists() or self._signer.read_text() != self._authority.directory:
            return True
        own = x509.load_pem_x509_certificates(self._path.read_bytes())[0]
        since, until = own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
        return self._now() >= until - (until - since) / 3

    def _obtain(self) -> SignedCertificate | None:
        account = self._account()
        try:
            return self._ordered(account)
        except Unregistered:  # the authority has forgotten it, or is another one now
            (self._folder / "account.json").unlink(missing_ok=True)
            return self._ordered(self._account())

    def _ordered(self, account: AuthorityAccount) -> SignedCertificate | None:
        """The certificate of a new order; None if the server stops meanwhile."""
        key = self._authority.new_key()
        placed = self._authority.order(account, self.name, key)
        if placed.token:
            self.answers[placed.token] = placed.answer
        try:
            signed = self._awaited(account, placed, key)
        finally:
            self.answers.pop(placed.token, None)
        if signed is not None:
            private_file(self._path, key + signed.chain)
            private_file(self._signer, self._authority.directory)
            self.context = load(self._path, self._path)
        return signed

    def _awaited(self, account: AuthorityAccount, placed: PlacedOrder, key: str) -> SignedCertificate | None:
        if placed.token:
            self._authority.answer(account, placed.url)
        end = self._now() + LONGEST_ORDER
        while self._now() < end:
            found = self._authority.collect(account, placed.url, self.name, key)
            if isinstance(found, SignedCertificate):
                return found
            if found.state == "invalid":
                raise Unfit(f"The authority didn't get what it asked of {self.name} at port 80: {found.error}")
            if self._pause(ASK_EVERY):
                return None
        raise Unfit(f"The authority hasn't decided about {self.name} within {LONGEST_ORDER:g} s.")

    def _account(self) -> AuthorityAccount:
        path = self._folder / "account.json"
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["directory"] == self._authority.directory:
                return AuthorityAccount(kept["key"], kept["url"])
        key = self._authority.new_key()
        url = self._authority.register(key)
        private_file(path, json.dumps({"directory": self._authority.directory, "key": key, "url": url}))
        return AuthorityAccount(key, url)


class PlainEntrance:
    """What answers at port 80: the authority gets what it asks for, everybody else is sent on to https."""

    def __init__(self, certificate: AcmeCertificate, url: str) -> None:
        self._certificate, self._url = certificate, url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = scope["method"] in ("GET", "HEAD")
        exchange = AsgiExchange(scope, receive, 0 if reading else None, DRAIN_SECONDS)
        await exchange.answer(self._reply(str(scope["path"]), scope["raw_path"], scope["query_string"]))

    def _reply(self, path: str, raw: bytes, query: bytes) -> Reply:
        if path.startswith(CHALLENGES):
            answer = self._certificate.answers.get(path.removeprefix(CHALLENGES))
            return Reply(200, {"content-type": "text/plain"}, answer.encode()) if answer else Reply(404, {}, b"")
        there = self._url + (raw + b"?" + query if query else raw).decode("latin-1")
        return Reply(308, {"location": there}, b"")


def stand_in(host: str, now: datetime) -> str:
    """A certificate that nobody signed, and its key: PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server that has no certificate yet")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
    made = made.not_valid_after(now + timedelta(days=STAND_IN_DAYS))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (plain + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)).decode()
