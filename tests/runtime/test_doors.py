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


class Recorder:
    def __init__(self) -> None:
        self.times = 0
        self.news = GatewayNews(self.ring)

    def ring(self, who: Iterable[str]) -> None:
        assert tuple(who) == (GATEWAYS,)
        self.times += 1


def test_only_what_concerns_gateways_rings() -> None:
    recorder, plain = Recorder(), b.run("plain")
    through = b.run("through", gateway_id=GATEWAY.id)
    recorder.news.committed([nouns.put(plain), nouns.put(b.job(plain)), nouns.put(b.host(0))])
    recorder.news.committed([nouns.put(b.job(through))])  # before its run is known to have one
    assert recorder.times == 0
    for changes in ([nouns.put(through)], [nouns.put(b.job(through))], [nouns.put(GATEWAY)]):
        before = recorder.times
        recorder.news.committed(changes)
        assert recorder.times == before + 1
    recorder.news.committed([nouns.put(through.with_(gateway_id=None))])  # it has moved: the gateway must forget it
    assert recorder.times == 4
    recorder.news.committed([Delete(keys.run(through.id))])
    recorder.news.committed([nouns.put(b.job(through))])
    assert recorder.times == 5


def test_after_a_restart_it_knows_who_has_a_gateway(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    gateway_seats.record(rig.world.store, gateway_seats.gateway(rig.project.id))
    config = {"type": "service", "port": 80, "commands": ["serve"], "gateway": "edge"}
    run_id = submit(rig, {"run_name": "chat", "configuration": config})["id"]
    recorder = Recorder()
    recorder.news.committed([nouns.put(b.job(b.run("chat").with_(id=run_id)))])
    assert recorder.times == 0
    recorder.news.begin(rig.world.plane)
    recorder.news.committed([nouns.put(b.job(b.run("chat").with_(id=run_id)))])
    assert recorder.times == 1
