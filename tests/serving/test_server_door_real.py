"""The server's own door is held to the suite of doors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving import contract, contract_live, contract_models, contract_replicas
from tests.serving.door import DoorFacts
from tests.serving.embedded import EmbeddedDoor, opened


class _Ours:
    @pytest.fixture
    def facts(self) -> DoorFacts:
        return DoorFacts("server", paths=True, models=True, tokens=True, hints=True, impatient=True)

    @pytest.fixture
    def door(self) -> Iterator[EmbeddedDoor]:
        with opened() as door:
            yield door


class TestPassesOn(_Ours, contract.PassesOn):
    pass


class TestHeaders(_Ours, contract.Headers):
    pass


class TestBodies(_Ours, contract.Bodies):
    pass


class TestStreams(_Ours, contract_live.Streams):
    pass


class TestWebSockets(_Ours, contract_live.WebSockets):
    pass


class TestWhoMayCome(_Ours, contract_live.WhoMayCome):
    pass


class TestTricks(_Ours, contract_live.Tricks):
    pass


class TestErrors(_Ours, contract_replicas.Errors):
    pass


class TestLimits(_Ours, contract_replicas.Limits):
    pass


class TestReplicas(_Ours, contract_replicas.Replicas):
    pass


class TestHolding(_Ours, contract_replicas.Holding):
    pass


class TestServesModels(_Ours, contract_models.ServesModels):
    pass


class TestCounting(_Ours, contract_replicas.Counting):
    pass
