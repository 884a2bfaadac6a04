"""Certificates given in a gateway's configuration: their validity, and the hosts that they cover.

Both parts may be in the project's secrets, and are read from there whenever they are needed, so that setting the secret
again renews the certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from chalicelib.configuration.interpolation import fill, secrets_in
from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instants import SECOND, Micros, iso
from chalicelib.domain.specs.gateways import GatewaySpec, GivenGatewayCertificate
from chalicelib.domain.tenants import Secret
from chalicelib.errors import Problem
from chalicelib.planning.gateways.hostnames import model_host
from chalicelib.store import nouns, sealed_specs
from chalicelib.usecases.people.secrets import opened
from chalicelib.usecases.ports import RecordPorts, SealedPorts

_CHAIN, _KEY = "certificate.certificate", "certificate.key"


@dataclass(frozen=True)
class GivenCertificate:
    chain: str  # PEM
    key: str = field(repr=False)
    names: tuple[str, ...]  # covered names; `*.` stands for one more label
    since: Micros
    until: Micros

    def covers(self, name: str) -> bool:
        """Does the certificate cover a host or, for `*.` and a domain, all of its hosts?"""
        return name in self.names or "*." + name.partition(".")[2] in self.names

    def valid(self, now: Micros) -> bool:
        return self.since <= now < self.until


def of_gateway(plane: SealedPorts, gateway: Gateway) -> GivenCertificate | list[Problem]:
    """The gateway's given certificate with current secrets, or what is wrong with it."""
    raw = {"configuration": gateway.written}
    clear = sealed_specs.opened(plane.seal, GatewaySpec, raw, sealed_specs.of_gateway(gateway.id))
    given = GatewaySpec.model_validate(clear).configuration.certificate
    assert isinstance(given, GivenGatewayCertificate), "only such gateways are asked about"
    return found(plane, gateway.project_id, given)


def found(plane: SealedPorts, project_id: str, given: GivenGatewayCertificate) -> GivenCertificate | list[Problem]:
    chain, key = (_filled(plane, project_id, text) for text in (given.certificate, given.key))
    missing = [*_missing(chain, _CHAIN), *_missing(key, _KEY)]
    return missing or _read(chain, key)


def wrong(read: GivenCertificate, domain: str, now: Micros, hosts: Iterable[str] = ()) -> Iterator[Problem]:
    """Reasons not to use the certificate. `hosts`: those that the gateway already serves with https."""
    if now < read.since:
        text, hint = f"the certificate isn't valid before {iso(read.since)}", "give one that is, or apply this then"
        yield Problem(text, path=_CHAIN, hint=hint)
    if now >= read.until:
        text = f"the certificate has expired: it was valid until {iso(read.until)[:10]}"
        yield Problem(text, path=_CHAIN, hint="give a valid one")
    missing = uncovered(read, domain, hosts)
    if missing:
        text = f"the certificate is for {_some(read.names) or 'no host'}, not for {_some(missing)}"
        needed = dict.fromkeys(f"`*.{name.partition('.')[2]}`" for name in missing)
        hint = f"give one for {' and '.join(needed)}: each service of the gateway has a host there"
        yield Problem(text, path=_CHAIN, hint=hint, code="exclusive")


def uncovered(read: GivenCertificate, domain: str, hosts: Iterable[str]) -> list[str]:
    """The hosts that must have https and that the certificate doesn't cover: all of the domain, and these `hosts`."""
    promised = ([f"*.{domain}"] if domain else []) + sorted(hosts)
    return [name for name in promised if not read.covers(name)]


def hosts_with_https(plane: RecordPorts, gateway: Gateway) -> set[str]:
    """The https hosts of the gateway's live services, which may have been applied when it had another domain."""
    found = set[str]()
    for run in plane.read.live_runs(gateway.project_id):
        if run.gateway_id == gateway.id and run.url.startswith("https:"):
            host = urlsplit(run.url).hostname or ""
            found |= {host, model_host(host)}
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _filled(plane: SealedPorts, project_id: str, text: str) -> str:
    """The text with the project's secrets filled in; references to missing ones remain."""
    names = sorted(set(secrets_in(text)))
    existing = nouns.find_many(plane.store, Secret, [keys.secret(project_id, name) for name in names]) if names else []
    return fill(text, {"secrets": {each.name: opened(plane, each) for each in existing if each}})


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
