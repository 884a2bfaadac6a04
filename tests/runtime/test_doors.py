"""Which commits gateways hear of: those that change what they are told."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chalicelib.domain import keys
from chalicelib.runtime.doors import GatewayNews
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.agents.gateway_sync import GATEWAYS
from tests.api.rig import Rig, submit
from tests.world import gateway_seats
from tests.world import nouns as b

GATEWAY = gateway_seats.gateway("p")


class Heard:
    def __init__(self) -> None:
        self.times = 0
        self.news = GatewayNews(self.ring)

    def ring(self, who: Iterable[str]) -> None:
        assert tuple(who) == (GATEWAYS,)
        self.times += 1


def test_only_what_concerns_gateways_rings() -> None:
    heard, plain = Heard(), b.run("plain")
    through = b.run("through", gateway_id=GATEWAY.id)
    heard.news.committed([nouns.put(plain), nouns.put(b.job(plain)), nouns.put(b.host(0))])
    heard.news.committed([nouns.put(b.job(through))])  # before its run is known to have one
    assert heard.times == 0
    for changes in ([nouns.put(through)], [nouns.put(b.job(through))], [nouns.put(GATEWAY)]):
        before = heard.times
        heard.news.committed(changes)
        assert heard.times == before + 1
    heard.news.committed([nouns.put(through.with_(gateway_id=None))])  # it has moved: the gateway must forget it
    assert heard.times == 4
    heard.news.committed([Delete(keys.run(through.id))])
    heard.news.committed([nouns.put(b.job(through))])
    assert heard.times == 5


def test_after_a_restart_it_knows_who_has_a_gateway(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    gateway_seats.record(rig.world.store, gateway_seats.gateway(rig.project.id))
    config = {"type": "service", "port": 80, "commands": ["serve"], "gateway": "edge"}
    run_id = submit(rig, {"run_name": "chat", "configuration": config})["id"]
    heard = Heard()
    heard.news.committed([nouns.put(b.job(b.run("chat").with_(id=run_id)))])
    assert heard.times == 0
    heard.news.begin(rig.world.plane)
    heard.news.committed([nouns.put(b.job(b.run("chat").with_(id=run_id)))])
    assert heard.times == 1
