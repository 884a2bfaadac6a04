"""The suite of doors against a gateway: the real nginx with our Lua, and what fills its memory.

nginx comes from apt where it is missing; a machine where it can't be had fails these tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving import contract, contract_live, contract_models, contract_replicas
from tests.serving.door import DoorFacts
from tests.serving.nginx_door import NginxDoor, installed


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxDoor]:
    installed()
    door = NginxDoor(tmp_path_factory.mktemp("gateway"))
    try:
        yield door
    finally:
        door.stop()


class Joined:
    hold: float

    @pytest.fixture
    def facts(self) -> DoorFacts:
        return DoorFacts("nginx", models=True, off=True)

    @pytest.fixture
    def door(self, gateway: NginxDoor) -> NginxDoor:
        gateway.empty()
        gateway.hold = self.hold
        return gateway


class TestPassesOn(Joined, contract.PassesOn):
    pass


class TestHeaders(Joined, contract.Headers):
    pass


class TestBodies(Joined, contract.Bodies):
    pass


class TestStreams(Joined, contract_live.Streams):
    pass


class TestWebSockets(Joined, contract_live.WebSockets):
    pass


class TestWhoMayCome(Joined, contract_live.WhoMayCome):
    pass


class TestTricks(Joined, contract_live.Tricks):
    pass


class TestErrors(Joined, contract_replicas.Errors):
    unknown = 403  # as for a service that the caller may not call: a gateway can't ask whose token it is


class TestLimits(Joined, contract_replicas.Limits):
    pass


class TestReplicas(Joined, contract_replicas.Replicas):
    pass


class TestHolding(Joined, contract_replicas.Holding):
    pass


class TestImpatience(Joined, contract_replicas.Impatience):
    pass


class TestCounting(Joined, contract_replicas.Counting):
    pass


class TestServesModels(Joined, contract_models.ServesModels):
    pass


class TestImpatienceOfModels(Joined, contract_models.Impatience):
    pass
