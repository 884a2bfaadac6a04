"""The certificate that the embedded server shows: files that may be replaced while it runs.

A connection keeps the certificate with which it began, so a renewed one interrupts no stream; new connections get the
new one. Files that don't fit together, as halfway through a renewal, leave the former certificate in use.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from chalicelib.errors import Refused

log = logging.getLogger(__name__)

FOLLOW_EVERY = 2.0  # seconds between two checks of the files


class ServerCertificate:
    """What the files last contained. Raises Refused if they contain no certificate with its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.paths = certificate, key
        self._seen = self._stamps()
        self.context = load(certificate, key)

    @property
    def name(self) -> str:
        return name_in(self.paths[0])

    def check_files(self) -> None:
        """Use the files' new contents, if they have changed."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        try:
            self.context = load(*self.paths)
        except Refused as problem:
            log.error("the former certificate stays in use: %s", problem)
        else:
            log.info("new connections get the renewed certificate in %s", self.paths[0])
        self._seen = stamps

    def _stamps(self) -> list[tuple[int, int, int]]:
        """What changes with the files' contents. One that is missing is about to be replaced."""
        found = [path.stat() if path.exists() else None for path in self.paths]
        return [(each.st_mtime_ns, each.st_ino, each.st_size) if each else (0, 0, 0) for each in found]


def load(certificate: Path, key: Path) -> ssl.SSLContext:
    context = new_context()
    try:
        context.load_cert_chain(certificate, key, password=_no_password(key))
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", "") or error.strerror or error
        raise Refused(
            f"{certificate} and {key} aren't a certificate with its key: {reason}.",
            hint="Name two PEM files: the server's certificate followed by those that signed it, and its private key.",
        ) from error
    return context


def new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password(key: Path) -> Callable[[], str]:
    """Refuses an encrypted key, for which OpenSSL would ask at the terminal."""

    def refuse() -> str:
        raise Refused(
            f"The key {key} is encrypted, and a server starts without somebody who types its password.",
            hint=f"Decrypt it: openssl pkey -in {key} -out KEY, with KEY readable by the server's user only.",
        )

    return refuse


def name_in(certificate: Path) -> str:
    """The first host that a certificate is for; a wildcard names none."""
    from cryptography import x509

    own = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
    try:
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    hosts = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    return next((host for host in hosts if "*" not in host), "")
