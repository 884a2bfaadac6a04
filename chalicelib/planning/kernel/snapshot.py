"""Snapshots: everything that a decision may know, read before it starts, including `now`.

A snapshot holds its nouns as they were read; a plan's changes are checked against them. Each room of decisions has its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.specs.fleets import FleetSpec


class Snapshot(Protocol):
    @property
    def now(self) -> Micros: ...

    @property
    def unit(self) -> str:
        """The unit being decided: `run/<id>`; empty outside a pass."""

    def nouns(self) -> Iterator[Noun]:
        """Every noun that was read."""

    def views(self) -> tuple[FleetView, ...]:
        """The fleets that were read with all their instances."""


@dataclass(frozen=True)
class FleetView:
    """A fleet with its spec and its live instances, including terminating ones. An imported fleet has the name by which
    this project knows it, `<project>/<name>`, and only those instances that jobs of other projects may use."""

    fleet: Fleet
    spec: FleetSpec
    instances: tuple[Instance, ...] = ()
    imported: bool = False

    def nouns(self) -> Iterator[Noun]:
        yield self.fleet
        yield from self.instances


@dataclass(frozen=True)
class NounsSnapshot:
    """A few nouns as just read, for a user's request or an agent's report."""

    now: Micros
    given: tuple[Noun, ...]
    unit: str = ""

    def nouns(self) -> Iterator[Noun]:
        yield from self.given

    def views(self) -> tuple[FleetView, ...]:
        return ()
