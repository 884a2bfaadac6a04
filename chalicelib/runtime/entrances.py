"""Where the embedded server listens: plainly, or with a certificate from files or an authority."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import time

from chalicelib.runtime import acme_certificate, tls
from chalicelib.runtime.addresses import Addresses, addresses_of, listen, secure_addresses
from chalicelib.runtime.settings import ServerSettings
from chalicelib.runtime.ticker import Ticker
from chalicelib.runtime.web import Entrance


@dataclass(frozen=True)
class Entrances:
    """Where the server listens. The first entrance is everybody's."""

    addresses: Addresses
    all: Sequence[Entrance]
    certificate: Ticker | None = None  # renews it, or follows its files


@contextmanager
def opened(settings: ServerSettings, listener: socket.socket) -> Iterator[Entrances]:
    """With a certificate, this machine's agents get a plain listener at loopback: no name of theirs is certified."""
    if settings.tls_cert is None and not settings.tls_acme:
        yield Entrances(addresses_of(listener, settings.public_url), [Entrance(listener)])
        return
    with ExitStack() as stack:
        here = stack.enter_context(listen("127.0.0.1", 0))
        if settings.tls_acme:
            authority, folder = settings.authority.build(), settings.data_dir / "tls"
            signed = acme_certificate.AcmeCertificate(authority, settings.tls_acme, folder, now=time)
            addresses = secure_addresses(listener, here, settings.public_url, signed.name)
            asked = stack.enter_context(listen(settings.host, settings.acme_port))
            plain = Entrance(asked, app=acme_certificate.PlainEntrance(signed, addresses.remote))
            stack.callback(signed.stop)
            keeping = Ticker(acme_certificate.CHECK_EVERY, signed.keep, at_once=True)
            yield Entrances(addresses, [Entrance(listener, lambda: signed.context), Entrance(here), plain], keeping)
        else:
            assert settings.tls_cert is not None and settings.tls_key is not None, "one is refused without the other"
            shown = tls.ServerCertificate(settings.tls_cert, settings.tls_key)
            addresses = secure_addresses(listener, here, settings.public_url, shown.name)
            following = Ticker(tls.FOLLOW_EVERY, shown.check_files)
            yield Entrances(addresses, [Entrance(listener, lambda: shown.context), Entrance(here)], following)
