"""The certificates of a gateway's hosts.

When a gateway polls its configuration, certificates are requested for hosts that have none, the others are marked as in
use, and challenges in the configuration that it already has count as answered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from chalicelib.domain import keys
from chalicelib.domain.certificates import Certificate, CertificateStatus, certificate_id, sealed_for
from chalicelib.domain.events import EventType
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros, iso
from chalicelib.errors import Conflict
from chalicelib.planning.gateways.certificates import challenge_answered, record_use, retry_now
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Delete
from chalicelib.usecases.ports import ChangePorts, RecordPorts, SealedChangePorts, SealedPorts
from chalicelib.usecases.services import uploaded_certificates

log = logging.getLogger(__name__)

LETS_ENCRYPT, GIVEN = "lets-encrypt", "given"


@dataclass(frozen=True)
class GatewayCertificates:
    """The certificates that a gateway shows for its hosts, and the challenges that it answers."""

    certificates: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)  # host → certificate, key: PEM
    challenges: dict[str, str] = field(default_factory=dict)  # token → answer
    unconfirmed: tuple[Certificate, ...] = ()  # whose challenges the gateway isn't known to answer yet


HostCertificateState = Literal["issued", "requested", "failed", "expired", "given"]  # given: with the configuration


@dataclass(frozen=True)
class HostCertificate:
    """A host's certificate as shown to users."""

    host: str
    state: HostCertificateState
    until: Micros | None = None
    message: str = ""  # why it, or its renewal, can't be issued
    next_attempt_at: Micros | None = None


def gateway_certificates(plane: SealedChangePorts, gateway: Gateway, hosts: Iterable[str]) -> GatewayCertificates:
    """The certificates for these hosts of the gateway's services. Missing ones are requested."""
    kind = "" if gateway.ending else kind_of(gateway)
    if kind == GIVEN:
        return GatewayCertificates(_given(plane, gateway, hosts))
    if kind != LETS_ENCRYPT:
        return GatewayCertificates()
    wanted, now = sorted(set(hosts)), plane.clock.now()
    found = plane.read.find_many(Certificate, [keys.certificate(certificate_id(gateway.id, host)) for host in wanted])
    existing = []
    for host, certificate in zip(wanted, found, strict=True):
        if certificate is None:
            _commit(plane, host, (), _new(gateway, host, now))
        elif certificate.dropped:
            _replace(plane, certificate, _new(gateway, host, now))
        else:
            _commit(plane, host, (certificate,), record_use(certificate, now))
            existing.append(certificate)
    return GatewayCertificates(
        {each.name: _shown(plane, each) for each in existing if each.serves(now)},
        {each.order.token: each.order.answer for each in existing if each.order is not None and each.order.token},
        tuple(each for each in existing if each.needs_challenge and not each.heard),
    )


def confirm_challenges(plane: ChangePorts, gateway: Gateway, num: int, those: Sequence[Certificate]) -> None:
    """Record that this replica of the gateway answers the challenges of these certificates."""
    answering = _reached(plane, gateway) if those else frozenset()
    for each in those:
        _commit(plane, each.name, (each,), challenge_answered(each, plane.clock.now(), num, answering))


def _reached(plane: RecordPorts, gateway: Gateway) -> frozenset[int]:
    """The replicas that can answer challenges. One on an unreachable machine doesn't hold up certificates."""
    machines = plane.read.find_many(Instance, [keys.instance(each.instance_id) for each in gateway.running])
    each_with = zip(gateway.running, machines, strict=True)
    return frozenset(each.num for each, machine in each_with if machine is None or not machine.unreachable)


def of_gateway(plane: RecordPorts, gateway_id: str) -> list[Certificate]:
    """The gateway's certificates by host, without dropped ones."""
    listed = all_of(plane.store, "gsi1", keys.certificates_of(gateway_id))
    found = (nouns.read(Certificate, record) for record in listed)
    return [each for each in found if not each.dropped]


def shown(plane: SealedPorts, gateway: Gateway) -> list[HostCertificate]:
    """The certificates of a gateway with https, by host."""
    kind, now = "" if gateway.ending else kind_of(gateway), plane.clock.now()
    if kind == GIVEN:
        return _given_shown(plane, gateway, now)
    return [_state(each, now) for each in of_gateway(plane, gateway.id)] if kind == LETS_ENCRYPT else []


def retry_failed(plane: ChangePorts, gateway: Gateway) -> None:
    """Retry failed certificates at once: a user who applies a gateway again has probably fixed the cause."""
    if kind_of(gateway) == LETS_ENCRYPT:
        for each in of_gateway(plane, gateway.id):
            _commit(plane, each.name, (each,), retry_now(each, plane.clock.now()))


def _state(certificate: Certificate, now: Micros) -> HostCertificate:
    pair, message = certificate.pair, certificate.message
    waits = certificate.status is CertificateStatus.waiting and bool(message)
    state: HostCertificateState = "expired" if pair is not None else "failed" if message else "requested"
    return HostCertificate(
        certificate.name,
        "issued" if certificate.serves(now) else state,
        None if pair is None else pair.until,
        message,
        certificate.due_at if waits else None,
    )


def _given_shown(plane: SealedPorts, gateway: Gateway, now: Micros) -> list[HostCertificate]:
    read = uploaded_certificates.of_gateway(plane, gateway)
    if isinstance(read, list):
        return [HostCertificate(f"*.{gateway.domain}", "failed", message="; ".join(each.message for each in read))]
    state: HostCertificateState = "given" if now < read.until else "expired"
    message = ""
    if now < read.since:
        state, message = "failed", f"It isn't valid before {iso(read.since)}."
    missing = uploaded_certificates.uncovered(
        read, gateway.domain, uploaded_certificates.hosts_with_https(plane, gateway)
    )
    alone = "The certificate that the gateway was given isn't for it."
    return [
        *(HostCertificate(name, state, read.until, message) for name in read.names),
        *(HostCertificate(name, "failed", message=alone) for name in missing),
    ]


def kind_of(gateway: Gateway) -> str:
    """Where the gateway's certificates come from; empty: it has none."""
    if gateway.https_port is None:
        return ""
    given = gateway.written.get("certificate", {"type": LETS_ENCRYPT})
    return str(given["type"]) if given else ""


def _given(plane: SealedPorts, gateway: Gateway, hosts: Iterable[str]) -> dict[str, dict[str, str]]:
    """The given certificate, for the hosts that it covers. It was valid when applied, but secrets may have changed."""
    read = uploaded_certificates.of_gateway(plane, gateway)
    if isinstance(read, list):
        log.warning("gateway %s shows no certificate: %s", gateway.name, "; ".join(each.message for each in read))
        return {}
    if not read.valid(plane.clock.now()):
        dates = f"{iso(read.since)} to {iso(read.until)}"
        log.warning("gateway %s shows no certificate: the one that it was given is valid from %s", gateway.name, dates)
        return {}
    return {host: {"certificate": read.chain, "key": read.key} for host in sorted(set(hosts)) if read.covers(host)}


def _shown(plane: SealedPorts, certificate: Certificate) -> dict[str, str]:
    pair = certificate.pair
    assert pair is not None, "one that serves is there"
    return {"certificate": pair.chain, "key": plane.seal.open(pair.key, context=sealed_for(certificate.id))}


def _new(gateway: Gateway, host: str, now: int) -> Plan:
    certificate = Certificate(
        id=certificate_id(gateway.id, host),
        project_id=gateway.project_id,
        gateway_id=gateway.id,
        gateway_name=gateway.name,
        name=host,
        used_at=now,
        created_at=now,
        last_processed_at=now,
        due_at=now,
    )
    draft = Draft(now)
    draft.save(certificate)
    draft.record(EventType.created, certificate)
    draft.wake(certificate.unit)
    return draft.plan()


def _commit(plane: ChangePorts, host: str, known: Sequence[Certificate], plan: Plan) -> None:
    if plan.empty:
        return
    try:
        plane.committer.take(NounsSnapshot(plane.clock.now(), tuple(known)), plan)
    except Conflict:  # another poll or a pass was faster: the next poll sees the result
        log.info("the certificate of %s has changed meanwhile", host)


def _replace(plane: ChangePorts, dropped: Certificate, plan: Plan) -> None:
    """Replace a certificate that was dropped because its host wasn't used for a long time."""
    try:
        plane.store.commit([Delete(nouns.key_of(dropped), dropped.version)])
    except Conflict:
        log.info("the certificate of %s has changed meanwhile", dropped.name)
    else:
        _commit(plane, dropped.name, (), plan)
