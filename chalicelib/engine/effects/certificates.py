"""Certificates: ordering them, having the challenge validated, and fetching the signed ones.

Each project has its own account at an authority: with a shared one, a project could get certificates for hosts that
another project has validated. The account's key is stored before it is registered, so two processes that register at
once use the same key. If the response to an order was lost, repeating the order returns the same one while it is
pending; its certificate gets a new key, because the authority doesn't know the key yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.certificates import Certificate, CertificateOrder, CertificatePair, Registration, sealed_for
from chalicelib.engine.certificate_authority import AuthorityAccount, CertificateAuthority, OrderState, Unregistered
from chalicelib.engine.effects.context import EffectContext, failure_fields, translated
from chalicelib.errors import BackendError, Bug, Conflict, Gone, Unfit
from chalicelib.planning.gateways.certificates import (
    AnswerChallenge,
    CertificateCollected,
    CollectCertificate,
    LookAtOrder,
    NotCertified,
    OrderPlaced,
    OrderSeen,
    PlaceOrder,
)
from chalicelib.planning.kernel.plan import Effect, Outcome
from chalicelib.store import nouns
from chalicelib.store.seal import Sealer

log = logging.getLogger(__name__)


class Certificates:
    effects: ClassVar[Mapping[type[Effect], str]] = {
        PlaceOrder: "order",
        AnswerChallenge: "answer",
        LookAtOrder: "check",
        CollectCertificate: "collect",
    }

    def __init__(self, here: EffectContext) -> None:
        self.here = here

    def order(self, effect: PlaceOrder) -> Outcome | None:
        return self._step(effect, self._order)

    def answer(self, effect: AnswerChallenge) -> Outcome | None:
        return self._step(
            effect, lambda found: self._seen(effect, self._authority(found).answer(*self._account_and_url(found)))
        )

    def check(self, effect: LookAtOrder) -> Outcome | None:
        return self._step(
            effect, lambda found: self._seen(effect, self._authority(found).check(*self._account_and_url(found)))
        )

    def collect(self, effect: CollectCertificate) -> Outcome | None:
        return self._step(effect, self._collect)

    def _order(self, certificate: Certificate) -> Outcome:
        authority, seal = self._authority(None), self._seal
        key = authority.new_key()
        placed = authority.order(self._account(authority, certificate.project_id), certificate.name, key)
        order = CertificateOrder(
            directory=authority.directory,
            url=placed.url,
            challenge=placed.challenge,
            token=placed.token,
            answer=placed.answer,
            key=seal.seal(key, context=sealed_for(certificate.id)),
            placed_at=self.here.clock.now(),
        )
        return OrderPlaced(certificate.unit, certificate.act_until or 0, order)

    def _collect(self, certificate: Certificate) -> Outcome:
        authority, order = self._authority(certificate), _order_of(certificate)
        key = self._seal.open(order.key, context=sealed_for(certificate.id))
        found = authority.collect(self._account(authority, certificate.project_id), order.url, certificate.name, key)
        until = certificate.act_until or 0
        if isinstance(found, OrderState):
            return OrderSeen(certificate.unit, until, found.state, found.error)
        pair = CertificatePair(chain=found.chain, key=order.key, since=found.since, until=found.until)
        return CertificateCollected(certificate.unit, until, pair)

    def _step(self, effect: Effect, step: Callable[[Certificate], Outcome]) -> Outcome | None:
        certificate = nouns.find(self.here.store, Certificate, keys.certificate(effect.unit.partition("/")[2]))
        if certificate is None or certificate.act_until != effect.act_until:
            log.info("%s is too late: its certificate has moved on", effect)
            return None
        try:
            with translated(f"the certificate of {certificate.name}"):
                return step(certificate)
        except Unregistered as error:
            self._forget_account(certificate.project_id)
            return NotCertified(effect.unit, *failure_fields(error), effect.act_until)
        except BackendError as error:
            return NotCertified(effect.unit, *failure_fields(error), effect.act_until)

    def _seen(self, effect: Effect, seen: OrderState) -> Outcome:
        return OrderSeen(effect.unit, effect.act_until, seen.state, seen.error)

    def _account_and_url(self, certificate: Certificate) -> tuple[AuthorityAccount, str]:
        return self._account(self._authority(certificate), certificate.project_id), _order_of(certificate).url

    def _authority(self, certificate: Certificate | None) -> CertificateAuthority:
        """The authority that has the certificate's order; for None, the one for the next order."""
        authority = self.here.authority
        if authority is None:
            raise Unfit("The settings of the certificate authority can't be used; the server's log says why.")
        if certificate is not None and _order_of(certificate).directory != authority.directory:
            raise Gone(f"The order is at another certificate authority, {_order_of(certificate).directory}.")
        return authority

    def _account(self, authority: CertificateAuthority, project_id: str) -> AuthorityAccount:
        """The project's account, which the authority has confirmed."""
        known = self._registration(authority, project_id)
        key = self._seal.open(known.key, context=known.context)
        if known.url:
            return AuthorityAccount(key, known.url)
        url = authority.register(key)
        try:
            self.here.store.commit([nouns.put(known.with_(url=url))])
        except Conflict:
            log.info("the account at %s was confirmed by another process too", authority.directory)
        return AuthorityAccount(key, url)

    def _forget_account(self, project_id: str) -> None:
        """Forget that the account is registered: the next attempt registers the same key again."""
        authority = self._authority(None)
        known = self._registration(authority, project_id)
        if not known.url:
            return
        try:
            self.here.store.commit([nouns.put(known.with_(url=""))])
        except Conflict:
            log.info("the account at %s was forgotten, or confirmed again, by another process", authority.directory)

    def _registration(self, authority: CertificateAuthority, project_id: str) -> Registration:
        place = keys.registration(project_id, authority.directory)
        found = nouns.find(self.here.store, Registration, place)
        if found is not None:
            return found
        now = self.here.clock.now()
        new = Registration(project_id=project_id, directory=authority.directory, key="", created_at=now)
        new = new.with_(key=self._seal.seal(authority.new_key(), context=new.context))
        try:
            self.here.store.commit([nouns.put(new)])
        except Conflict:  # another process was faster
            found = nouns.find(self.here.store, Registration, place)
            if found is not None:
                return found
            raise
        return new.with_(version=1)

    @property
    def _seal(self) -> Sealer:
        if self.here.seal is None:
            raise Bug("a certificate is ordered where nothing can be sealed")
        return self.here.seal


def _order_of(certificate: Certificate) -> CertificateOrder:
    if certificate.order is None:
        raise Bug(f"the certificate of {certificate.name} has no order")
    return certificate.order
