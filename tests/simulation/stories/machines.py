"""A cloud's machines: bought once, released whole, reclaimed by the cloud at any time."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.backends.simulated.cloud import Body
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain import keys
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.store import nouns
from tests.simulation.plane import INSTALL
from tests.simulation.stories import Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

BOUGHT_ONCE = Invariant("bought once", "there is at most one machine for one purchase, whoever made it")
BOUGHT_AS_COMMITTED = Invariant("bought as committed", "a cloud is asked for a machine only after that was committed")
WANTED_STAYS = Invariant("wanted stays", "nothing is given back that belongs to an instance that isn't ending")
HANDLES_STAY = Invariant("handles kept", "an instance never forgets what was made for it")
GONE_IS_GONE = Invariant("gone is gone", "an instance is called gone only when nothing of it is left")
PURCHASES_SETTLE = Invariant("purchases settle", "a machine that was ordered comes up or is given back, whoever asks")
NOTHING_LEFT = Invariant("nothing left", "in the end the cloud holds nothing of ours")

_ENDING = (InstanceStatus.terminating, InstanceStatus.terminated)
_TRANSITIONAL = (InstanceStatus.pending, InstanceStatus.provisioning, InstanceStatus.terminating)


class Machines(Story):
    def prepare(self) -> None:
        backend = self.site.backend
        backend.creating, backend.made, backend.ending = self._creating, self._made, self._giving_back

    def plan(self) -> None:
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            self.sometime(self.rng.choice((self._interrupt, self._lose)), 5, FAULTY_FOR)

    def _interrupt(self) -> None:
        machines = [body for body in self._own_machines() if body["spot"]]
        if machines:
            self.world.note("machine interrupted")
            self.site.cloud.interrupt(dict(self.rng.choice(machines)["tags"])["dstack-instance"])

    def _lose(self) -> None:
        machines = self._own_machines()
        if machines:
            self.world.note("machine lost")
            self.site.cloud.lose(self.rng.choice(machines)["id"])

    def _own_machines(self) -> list[Body]:
        return [body for body in self.site.cloud.machines() if dict(body["tags"])["dstack-install"] == INSTALL]

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _creating(self, request: CreateRequest) -> None:
        instance = nouns.find(self.site.store, Instance, keys.instance(request.instance_id))
        if instance is None or instance.status is not InstanceStatus.pending or instance.act_until is None:
            raise BOUGHT_AS_COMMITTED.broken(f"a machine is bought for {instance and (instance.name, instance.status)}")

    def _made(self) -> None:
        seen: dict[str, str] = {}
        for body in self.site.cloud.machines():
            if body["ends_at"] is None and body["interrupted_at"] is None:
                if body["name"] in seen:
                    raise BOUGHT_ONCE.broken(f"{seen[body['name']]} and {body['id']} are both {body['name']}")
                seen[body["name"]] = body["id"]

    def _giving_back(self, handle: Handle) -> None:
        """Whose is it? According to the table as it is, not to what the caller believes."""
        tags = next((dict(body["tags"]) for body in self.site.cloud.resources() if body["id"] == handle.id), None)
        if tags is None or tags["dstack-install"] != INSTALL:
            return  # already gone, or not ours: the orphans' story checks that
        instance = nouns.find(self.site.store, Instance, keys.instance(tags.get("dstack-instance", "")))
        if instance is not None and instance.status not in _ENDING:
            raise WANTED_STAYS.broken(f"{handle.id} is given back, and {instance.name} is {instance.status}")

    def committed(self, commit: Commit) -> None:
        for old, instance in commit.of(Instance):
            ended = instance.status is InstanceStatus.terminated
            if ended and instance.bought and (old is None or old.status is not InstanceStatus.terminated):
                left = self._resources_of(instance.id)
                if left:
                    raise GONE_IS_GONE.broken(f"instance {instance.name} is called gone, but there is {left}")
            if old is not None and not ended:
                current = {(handle.kind, handle.id) for handle in instance.handles}
                dropped = [handle for handle in old.handles if (handle.kind, handle.id) not in current]
                if dropped:
                    raise HANDLES_STAY.broken(f"instance {instance.name} forgets {dropped}")

    def _resources_of(self, instance_id: str) -> list[str]:
        return [
            body["id"]
            for body in self.site.cloud.resources()
            if dict(body["tags"]).get("dstack-instance") == instance_id
        ]

    def unfinished(self) -> Iterator[Violation]:
        for instance in self.watch.instances.values():
            if instance.bought and instance.status in _TRANSITIONAL:
                yield PURCHASES_SETTLE.broken(f"instance {instance.name} is {instance.status}: {instance.message!r}")

    def left(self) -> Iterator[Violation]:
        for body in self.site.cloud.resources():
            if dict(body["tags"])["dstack-install"] == INSTALL:
                yield NOTHING_LEFT.broken(f"{body['id']} with {dict(body['tags'])}")

    def verify_at_end(self) -> None:
        self._made()
