"""Certificates that somebody gives with a gateway's configuration: are they any good, and for which hosts?

Both parts may be in the project's secrets, and are read there whenever they are needed, so that setting the secret
again renews the certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chalicelib.configuration.interpolation import fill, secrets_in
from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instants import SECOND, Micros, iso
from chalicelib.domain.specs.gateways import GatewaySpec, GivenGatewayCertificate
from chalicelib.domain.tenants import Secret
from chalicelib.errors import Problem
from chalicelib.store import nouns, sealed_specs
from chalicelib.usecases.context import Plane
from chalicelib.usecases.secrets import opened

_CHAIN, _KEY = "certificate.certificate", "certificate.key"


@dataclass(frozen=True)
class GivenCertificate:
    chain: str  # PEM
    key: str = field(repr=False)
    names: tuple[str, ...]  # that it is for; `*.` for whatever has one label more
    since: Micros
    until: Micros

    def covers(self, host: str) -> bool:
        return host in self.names or "*." + host.partition(".")[2] in self.names


def of_gateway(plane: Plane, gateway: Gateway) -> GivenCertificate | list[Problem]:
    """What the gateway was given, as it is now; or what is wrong with it."""
    raw = {"configuration": gateway.written}
    clear = sealed_specs.opened(plane.seal, GatewaySpec, raw, sealed_specs.of_gateway(gateway.id))
    given = GatewaySpec.model_validate(clear).configuration.certificate
    assert isinstance(given, GivenGatewayCertificate), "only such gateways are asked about"
    return found(plane, gateway.project_id, given)


def found(plane: Plane, project_id: str, given: GivenGatewayCertificate) -> GivenCertificate | list[Problem]:
    chain, key = (_filled(plane, project_id, text) for text in (given.certificate, given.key))
    missing = [*_missing(chain, _CHAIN), *_missing(key, _KEY)]
    return missing or _read(chain, key)


def wrong(read: GivenCertificate, domain: str, now: Micros) -> Iterator[Problem]:
    """What speaks against showing it."""
    if now >= read.until:
        text = f"the certificate has expired: it was valid until {iso(read.until)[:10]}"
        yield Problem(text, path=_CHAIN, hint="give a valid one")
    if domain and not any(read.covers(name.replace("*", "x")) and name.endswith("." + domain) for name in read.names):
        text = f"the certificate is for {', '.join(read.names[:5]) or 'no host'}, not for hosts of {domain}"
        yield Problem(text, path=_CHAIN, hint=f"give one for `*.{domain}`", code="exclusive")


def _filled(plane: Plane, project_id: str, text: str) -> str:
    """With the project's secrets; a reference to one that isn't there stays."""
    names = sorted(set(secrets_in(text)))
    there = nouns.find_many(plane.store, Secret, [keys.secret(project_id, name) for name in names]) if names else []
    return fill(text, {"secrets": {each.name: opened(plane, each) for each in there if each}})


def _missing(text: str, path: str) -> Iterable[Problem]:
    for name in secrets_in(text):
        what = f"the project has no secret {name}"
        yield Problem(what, path=path, hint=f"set it with `dstack secret set {name} <value>`", code="unknown-value")


def _read(chain: str, key: str) -> GivenCertificate | list[Problem]:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    if "PRIVATE KEY-----" in chain:  # this part isn't encrypted at rest
        hint = "take it out, and give it as the key"
        return [Problem("there is a private key in it", path=_CHAIN, hint=hint)]
    try:
        own = x509.load_pem_x509_certificates(chain.encode())[0]
        public, names = own.public_key(), _names(own)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension):
        hint = "PEM, the host's own certificate first, then those that lead to the authority; or a file of it"
        return [Problem("it isn't a certificate", path=_CHAIN, hint=hint)]
    private = _private(key)
    if private is None:
        hint = "PEM of an RSA or EC key without a passphrase, or a file of it"
        return [Problem("it isn't a private key", path=_KEY, hint=hint)]
    if private.public_key() != public:
        hint = "give the key for which this certificate was issued"
        return [Problem("the key doesn't belong to the certificate", path=_KEY, hint=hint, code="exclusive")]
    since, until = (round(at.timestamp()) * SECOND for at in (own.not_valid_before_utc, own.not_valid_after_utc))
    return GivenCertificate(chain, key, names, since, until)


def _private(key: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = load_pem_private_key(key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return found if isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) else None


def _names(own: Any) -> tuple[str, ...]:
    from cryptography import x509

    try:
        listed = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(name.lower() for name in listed.get_values_for_type(x509.DNSName))
