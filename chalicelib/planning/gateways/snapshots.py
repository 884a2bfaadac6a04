"""Snapshots for passes over gateways and certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chalicelib.domain.certificates import Certificate
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.market_answers import Answers
from chalicelib.planning.matching.offer_book import OfferBook


@dataclass(frozen=True)
class GatewaySnapshot:
    """For `gateway/<id>`."""

    now: Micros
    gateway: Gateway
    machines: Mapping[str, Instance] = field(default_factory=dict)  # the machines of its replicas, by id
    hosts: tuple[Instance, ...] = ()  # of its fleet, in order of their numbers; read while a replica has no machine
    fleet_exists: bool = True
    offers: OfferBook | None = None  # for machines of its own; read while a replica has no machine
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)  # of its backend, if that has no list of offers

    @property
    def unit(self) -> str:
        return self.gateway.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.gateway
        yield from self.hosts
        yield from self.machines.values()

    def views(self) -> tuple[FleetView, ...]:
        return ()


@dataclass(frozen=True)
class CertificateSnapshot:
    """For `certificate/<id>`, and for the outcome of an effect on it."""

    now: Micros
    certificate: Certificate
    gateway: Gateway | None

    @property
    def unit(self) -> str:
        return self.certificate.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.certificate

    def views(self) -> tuple[FleetView, ...]:
        return ()
