"""Snapshots for passes over instances and fleets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.workflows import Workflow
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook


@dataclass(frozen=True)
class InstanceSnapshot:
    """For `instance/<id>`, and for the outcome of an effect on it."""

    now: Micros
    instance: Instance
    presence: Presence | None
    fleet: FleetView  # all the fleet's instances, this one included
    jobs: tuple[Job, ...]  # those that hold a claim here
    facts: BackendFacts | None = None
    workflows: tuple[Workflow, ...] = ()  # of a host that is being added or removed
    bundle: tuple[Instance, ...] = ()  # the other instances of its purchase, if that is of several

    @property
    def unit(self) -> str:
        return f"instance/{self.instance.id}"

    def nouns(self) -> Iterator[Noun]:
        yield from self.jobs
        yield from self.workflows
        yield from self.fleet.nouns()
        yield from (*self.bundle, self.instance)  # read by key, so they win over the fleet's copies

    def views(self) -> tuple[FleetView, ...]:
        return (self.fleet,)


@dataclass(frozen=True)
class FleetSnapshot:
    """For `fleet/<id>`."""

    now: Micros
    view: FleetView
    offers: OfferBook
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return f"fleet/{self.view.fleet.id}"

    def nouns(self) -> Iterator[Noun]:
        yield from self.view.nouns()

    def views(self) -> tuple[FleetView, ...]:
        return (self.view,)
