"""A certificate for one host of a gateway, which an authority signs: while it is asked for, while it serves, and while
its successor is asked for.

`pair` is what the gateway shows, whatever becomes of the order for the next one. Private keys are sealed, and a
certificate that is dropped has none any more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun, Value

DROPPED_TTL: Micros = DAY  # a dropped one


class CertificateStatus(StrEnum):
    waiting = "waiting"  # no order is under way; `due_at` says when to place the next
    ordered = "ordered"  # the authority wants to see an answer at the host
    validating = "validating"  # it was told to look
    finalizing = "finalizing"  # it has seen it, and is to sign
    issued = "issued"
    dropped = "dropped"


class CertificatePair(Value):
    """A certificate with its key."""

    chain: str  # PEM, the host's own first
    key: str  # sealed
    since: Micros
    until: Micros


class CertificateOrder(Value):
    """What the authority knows an order by, and what it wants to see at the host."""

    directory: str  # of the authority
    url: str
    challenge: str = ""  # the address of the challenge; empty: it asks for none
    token: str = ""
    answer: str = ""
    key: str  # of the certificate to be: sealed
    placed_at: Micros


class Certificate(Noun):
    kind: ClassVar[str] = "certificate"

    id: str
    project_id: str
    gateway_id: str
    gateway_name: str
    name: str  # the host
    status: CertificateStatus = CertificateStatus.waiting
    message: str = ""  # what keeps it from being issued
    order: CertificateOrder | None = None
    heard: bool = False  # the gateway answers the order's challenge, at each of its replicas
    heard_by: tuple[int, ...] = ()  # until then: these do
    answered_at: Micros | None = None  # when the authority was told to look
    looks: int = 0  # or calls that couldn't be made, since its last step
    failures: int = 0  # orders that came to nothing, in a row
    not_before: Micros | None = None  # until then the authority itself wants to be left alone
    pair: CertificatePair | None = None
    used_at: Micros  # when the gateway was last told about its host, to the day
    created_at: Micros
    last_processed_at: Micros
    dropped_at: Micros | None = None
    act_until: Micros | None = None  # until then a committed call may be under way, and only its committer acts
    due_at: Micros | None = None

    @property
    def unit(self) -> str:
        return f"certificate/{self.id}"

    @property
    def dropped(self) -> bool:
        return self.status is CertificateStatus.dropped

    def serves(self, now: Micros) -> bool:
        return self.pair is not None and now < self.pair.until

    @property
    def needs_challenge(self) -> bool:
        """Must the gateway answer a challenge for it?"""
        return self.order is not None and bool(self.order.token)

    def place(self) -> keys.Place:
        expires_at = None if self.dropped_at is None else (self.dropped_at + DROPPED_TTL) // SECOND
        listed = (keys.certificates_of(self.gateway_id), self.name)
        due = keys.due(self.unit, self.due_at)
        return keys.Place(keys.certificate(self.id), listed, due=due, expires_at=expires_at)

    def parent(self) -> tuple[str, str, str]:
        return "gateway", self.gateway_id, self.gateway_name


def certificate_id(gateway_id: str, host: str) -> str:
    """Of the one certificate that a gateway has for a host, so that it is found by key before an index shows it."""
    return derive(gateway_id, "certificate", host)


def sealed_for(certificate_id: str) -> str:
    """The context of its private keys' seals."""
    return f"certificate/{certificate_id}"


class Registration(Noun):
    """A project's account at an authority. What a host has proved to an authority is good for its account for weeks,
    and a certificate of one project's host is nothing for another, so no two of them share one."""

    project_id: str
    directory: str
    key: str  # sealed
    url: str = ""  # empty until the authority has confirmed it
    created_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.registration(self.project_id, self.directory))

    @property
    def context(self) -> str:
        """Of its key's seal."""
        return f"authority/{self.project_id}/{self.directory}"
