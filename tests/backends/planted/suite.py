"""The planted faults, played on one backend: each case of the conformance suite must fail with the faults that name it.

A backend's test joins with the fixtures of its conformance suite, of which it calls two `sound` and `sound_broken`:

    class TestSomeFaults(PlantedFaults, Some):
        sound, sound_broken = Some.backend, Some.broken
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from chalicelib.backends.spi import Backend, facts_of
from chalicelib.domain.facts import BackendFacts
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.bundling import Bundling
from tests.backends.conformance.containers import ContainerConformance
from tests.backends.conformance.suite import Suite
from tests.backends.conformance.volumes import VolumeConformance
from tests.backends.planted import FAULTS, Case, PortFault, planted
from tests.harness.conformance import Denied

Pair = tuple[type[PortFault], Case]
ALL: Sequence[Pair] = [(fault, case) for fault in FAULTS for case in fault.cases]
EACH_CASE_ONCE: Sequence[Pair] = list({case.name: (fault, case) for fault, case in reversed(ALL)}.values())
SLIPS = (AttributeError, NameError, NotImplementedError, TypeError)  # of a wrapper's own code: nothing was noticed


def needed(case: Any) -> Iterator[str]:
    for mark in getattr(case, "pytestmark", ()):
        if mark.name == "needs":
            yield from mark.args


def required_of(facts: BackendFacts) -> set[str]:
    """The cases that a backend with these facts must pass."""
    cases = {name: getattr(BackendConformance, name) for name in dir(BackendConformance) if name.startswith("test_")}
    return {
        name.removeprefix("test_")
        for name, case in cases.items()
        if all(getattr(facts, capability) for capability in needed(case))
    }


class PlantedFaults(Suite):
    site, contained = VolumeConformance.site, ContainerConformance.contained
    mounting, bundle = VolumeConformance.mounting, Bundling.bundle
    pairs: ClassVar[Sequence[Pair]] = ALL
    unnoticed: ClassVar[Mapping[str, str]] = {}  # faults that make no difference to this backend, and why

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            ids = [f"{fault.__name__}-{case}" for fault, case in self.pairs]
            metafunc.parametrize(("fault", "case"), self.pairs, ids=ids)

    @pytest.fixture
    def fault(self) -> type[PortFault]:
        return PortFault

    @pytest.fixture
    def backend(self, sound: Backend, fault: type[PortFault]) -> Any:
        return planted(fault, sound)

    @pytest.fixture
    def broken(self, sound_broken: Backend, fault: type[PortFault]) -> Any:
        return planted(fault, sound_broken)

    def test_a_fault_is_noticed(
        self, request: pytest.FixtureRequest, sound: Backend, fault: type[PortFault], case: Case
    ) -> None:
        played = getattr(BackendConformance(), f"test_{case.name}")
        facts = facts_of(sound)
        for capability in needed(played):
            if not getattr(facts, capability):
                raise Denied(f"the facts of {facts.name} deny `{capability}`")
        wanted = [name for name in inspect.signature(played).parameters if name not in case.given]
        given = {name: request.getfixturevalue(name) for name in wanted}
        try:
            played(**given, **case.given)
        except SLIPS:
            raise
        except (Exception, pytest.fail.Exception):
            assert fault.__name__ not in self.unnoticed
        else:
            assert fault.__name__ in self.unnoticed, f"{case.name} passes with the fault {fault.__name__}"

    def test_every_case_has_a_fault_that_it_notices(self, sound: Backend) -> None:
        assert required_of(facts_of(sound)) - {case.name for _, case in self.pairs} == set()
