"""Pebble, the certificate authority for tests by the makers of Let's Encrypt, with a DNS server of its own that knows
every host as this machine."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.harness.ports import free_port
from tests.harness.server import until
from tests.serving.door import ROOT

BINARIES = ROOT / ".venvs" / "pebble" / "usr" / "bin"
KID, HMAC_KEY = "kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"


def made_certificate(
    *hosts: str, until_: timedelta = timedelta(days=90), since: datetime | None = None
) -> tuple[str, str]:
    """A self-signed one and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0] if hosts else "nobody")])
    at = since or datetime.now().astimezone()
    alternatives: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts if not host[0].isdigit()]
    alternatives += [x509.IPAddress(ip_address(host)) for host in hosts if host[0].isdigit()]
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(at).not_valid_after(at + until_)
    if alternatives:
        made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed = made.sign(key, hashes.SHA256())
    plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
    return (
        signed.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(serialization.Encoding.PEM, form, plain).decode(),
    )


class Pebble:
    def __init__(self, folder: Path, http_port: int, *, bound: bool = False, reject: int = 0) -> None:
        """`http_port`: where it looks for answers. `bound`: accounts need a key that it gave. `reject`: percent of the
        nonces that it doesn't take, as authorities may."""
        if not (BINARIES / "pebble").exists():
            pytest.skip("the certificate authority isn't installed here; `make test` unpacks it into .venvs/pebble")
        self.folder = folder
        self.ca, key = made_certificate("localhost", "127.0.0.1")
        (folder / "cert.pem").write_text(self.ca)
        (folder / "key.pem").write_text(key)
        ports = self.port, self.managed, self.dns, self.names = tuple(free_port() for _ in range(4))
        self.directory = f"https://127.0.0.1:{ports[0]}/dir"
        config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.managed}",
            "certificate": str(folder / "cert.pem"),
            "privateKey": str(folder / "key.pem"),
            "httpPort": http_port,
            "tlsPort": 1,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": bound,
            "externalAccountMACKeys": {KID: HMAC_KEY} if bound else {},
        }
        (folder / "pebble.json").write_text(json.dumps({"pebble": config}))
        self._reject = str(reject)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        quiet = {**os.environ, "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": self._reject}
        names = ["-dns01", f"127.0.0.1:{self.dns}", "-management", f"127.0.0.1:{self.names}", "-defaultIPv6", ""]
        nothing = [argument for each in ("http01", "https01", "tlsalpn01") for argument in (f"-{each}", "")]
        commands = (
            [str(BINARIES / "pebble-challtestsrv"), *names, *nothing],
            [
                str(BINARIES / "pebble"),
                "-config",
                str(self.folder / "pebble.json"),
                "-dnsserver",
                f"127.0.0.1:{self.dns}",
            ],
        )
        with (self.folder / "log").open("ab") as log:
            self.processes = [subprocess.Popen(each, env=quiet, stdout=log, stderr=log) for each in commands]
        until("the certificate authority answers", self._answers)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self.get(self.directory))
        except OSError:
            return False

    def get(self, url: str) -> bytes:
        context = ssl.create_default_context(cadata=self.ca)
        with urllib.request.urlopen(url, context=context, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    def root(self) -> str:
        """Whom clients of the certified hosts have to trust."""
        return self.get(f"https://127.0.0.1:{self.managed}/roots/0").decode()

    def knows(self, host: str, *addresses: str) -> None:
        """From now on the host has these addresses; none: it isn't known."""
        self._name("clear-a", {"host": host + "."})
        if addresses:
            self._name("add-a", {"host": host + ".", "addresses": list(addresses)})
        else:
            self._name("set-default-ipv4", {"ip": ""})

    def _name(self, what: str, body: Any) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.names}/{what}", json.dumps(body).encode())
        urllib.request.urlopen(request, timeout=60).close()


@contextmanager
def pebble(folder: Path, http_port: int, *, bound: bool = False, reject: int = 0) -> Iterator[Pebble]:
    made = Pebble(folder, http_port, bound=bound, reject=reject)
    try:
        yield made
    finally:
        made.stop()
