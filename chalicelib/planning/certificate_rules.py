"""What no plan may do to certificates: see `lint`."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.certificates import Certificate, CertificateStatus
from chalicelib.planning.certificates import AnswerChallenge, CollectCertificate, LookAtOrder, PlaceOrder
from chalicelib.planning.lint import Known
from chalicelib.planning.plan import Step

_ASKED_IN = {
    PlaceOrder: (CertificateStatus.waiting,),
    AnswerChallenge: (CertificateStatus.ordered,),
    LookAtOrder: (CertificateStatus.validating,),
    CollectCertificate: (CertificateStatus.finalizing,),
}


def certificates(step: Step, known: Known) -> Iterator[str]:
    """The authority is asked only as committed, and only to look where the host answers; what is there isn't given up
    while another is asked for; one that is dropped has no key; all others are looked at again."""
    saved = {noun.unit: noun for noun in step.saves if isinstance(noun, Certificate)}
    for certificate in saved.values():
        name = f"the certificate of {certificate.name}"
        if certificate.dropped and (certificate.order or certificate.pair):
            yield f"{name} is dropped with its key"
        if not certificate.dropped and certificate.due_at is None:
            yield f"{name} is {certificate.status.value}, but nothing will look at it again"
        if certificate.status is CertificateStatus.issued and certificate.pair is None:
            yield f"{name} is issued, and isn't there"
        before = known.get((Certificate, certificate.id))
        if isinstance(before, Certificate) and before.pair and not certificate.pair and not certificate.dropped:
            yield f"{name} is given up before its successor is there"
    for effect in step.effects:
        asked_in = _ASKED_IN.get(type(effect))
        if asked_in is None:
            continue
        intended = saved.get(effect.unit)
        if intended is None or intended.act_until != effect.act_until or intended.status not in asked_in:
            yield f"{effect.unit} is to {type(effect).__name__} without committing it"
        elif isinstance(effect, AnswerChallenge) and intended.order and intended.order.token and not intended.heard:
            yield f"the authority is to look at {intended.name}, which doesn't answer yet"
