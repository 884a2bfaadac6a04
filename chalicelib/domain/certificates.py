"""A certificate for one host of a gateway, signed by an authority: its orders, its use and its renewal.

`pair` is the certificate in use, whatever happens to the order for the next one. Private keys are sealed, and a dropped
certificate has none.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun, Value

DROPPED_TTL: Micros = DAY  # how long the record of a dropped certificate is kept


class CertificateStatus(StrEnum):
    waiting = "waiting"  # no order is under way; `due_at` says when to place the next
    ordered = "ordered"  # the authority expects an answer to its challenge at the host
    validating = "validating"  # validation was requested
    finalizing = "finalizing"  # the authority has validated the host, and is to sign
    issued = "issued"
    dropped = "dropped"


class CertificatePair(Value):
    """A certificate with its key."""

    chain: str  # PEM, the host's own certificate first
    key: str  # sealed
    since: Micros
    until: Micros


class CertificateOrder(Value):
    """An order at an authority, and the answer that the authority expects at the host."""

    directory: str  # of the authority
    url: str
    challenge: str = ""  # the URL of the challenge; empty: there is none
    token: str = ""
    answer: str = ""
    key: str  # of the future certificate: sealed
    placed_at: Micros


class Certificate(Noun):
    kind: ClassVar[str] = "certificate"

    id: str
    project_id: str
    gateway_id: str
    gateway_name: str
    name: str  # the host
    status: CertificateStatus = CertificateStatus.waiting
    message: str = ""  # why it isn't issued yet
    order: CertificateOrder | None = None
    heard: bool = False  # all running replicas of the gateway answer the order's challenge
    heard_by: tuple[int, ...] = ()  # until then: the numbers of the replicas that do
    answered_at: Micros | None = None  # when validation was requested
    looks: int = 0  # polls, or calls that failed, since its last step
    failures: int = 0  # consecutive failed orders
    not_before: Micros | None = None  # the end of a pause that the authority asked for
    pair: CertificatePair | None = None
    used_at: Micros  # when the gateway last requested it, to the day
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
    """The id of a gateway's certificate for a host, so that it can be read by key before an index shows it."""
    return derive(gateway_id, "certificate", host)


def sealed_for(certificate_id: str) -> str:
    """The context in which the certificate's private keys are sealed."""
    return f"certificate/{certificate_id}"


class Registration(Noun):
    """A project's account at an authority. The authority accepts a host's validation for its account for weeks, and no
    project may get a certificate for another's host, so projects don't share accounts."""

    project_id: str
    directory: str
    key: str  # sealed
    url: str = ""  # empty until the authority has confirmed it
    created_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.registration(self.project_id, self.directory))

    @property
    def context(self) -> str:
        """The context in which its key is sealed."""
        return f"authority/{self.project_id}/{self.directory}"
