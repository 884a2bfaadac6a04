"""The orphan hunt against the fake cloud and a real store."""

from __future__ import annotations

from chalicelib.backends.fake import FakeCloud
from chalicelib.backends.fake_parts.script import Fault, Script
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import SECOND
from chalicelib.engine.sweep import Sweeper
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore

START = 1_700_000_000 * SECOND


class Clock:
    def __init__(self) -> None:
        self.at = START

    def now(self) -> int:
        return self.at


class Place:
    def __init__(self, script: Script | None = None) -> None:
        self.clock, self.script = Clock(), script or Script(end=0)
        self.cloud = FakeCloud(self.clock.now, script=self.script)
        self.store = MemoryStore()
        self.sweeper = Sweeper(self.store, self.clock, {"dstack": self.cloud}, install_id="ours")

    def buy(self, instance_id: str, install: str = "ours") -> None:
        tags = (("dstack-install", install), ("dstack-project", "p"), ("dstack-instance", instance_id))
        offer = self.cloud.offers()[0]
        request = CreateRequest(
            token=f"token-{install}-{instance_id}",
            name=f"dstack-{install}-{instance_id}",
            tags=(*tags, ("dstack-epoch", "0")),
            offer=offer,
            instance_id=instance_id,
            user_data="",
            disk_mib=1024,
        )
        assert len(list(self.cloud.create(request))) == 2

    def keep(self, instance_id: str, status: str, finished_at: int | None = None) -> None:
        instance = Instance.model_validate(
            {
                "id": instance_id,
                "project_id": "p",
                "fleet_id": "f",
                "fleet_name": "cloud",
                "num": 0,
                "name": "cloud-0",
                "offer": self.cloud.offers()[0],
                "status": status,
                "created_at": START,
                "last_processed_at": START,
                "finished_at": finished_at,
            }
        )
        self.store.commit([nouns.put(instance)])

    def left(self) -> set[str]:
        return {dict(body["tags"])["dstack-instance"] for body in self.cloud.resources()}


def test_only_what_belongs_to_nobody_is_given_back() -> None:
    place = Place()
    for instance_id in ("alive", "ended", "unheard-of"):
        place.buy(instance_id)
    place.buy("neighbour", install="theirs")
    place.keep("alive", "busy")
    place.keep("ended", "terminated", START)
    place.clock.at += 60 * SECOND
    found = place.sweeper.run()
    assert sorted({one.instance_id for one in found}) == ["ended", "unheard-of"]
    assert place.left() == {"alive", "neighbour"}
    assert place.sweeper.run() == []


def test_a_cloud_that_doesnt_answer_is_asked_again_by_the_next_look() -> None:
    place = Place(Script(end=0, faults=[Fault("list", "Transient")]))
    place.buy("unheard-of")
    assert place.sweeper.run() == []
    assert place.left() == {"unheard-of"}
    place.sweeper.run()
    assert place.left() == set()
