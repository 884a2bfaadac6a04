"""Resources at a cloud that belong to no instance: ours are released, a stranger's are left alone."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.boot_script import user_data
from chalicelib.domain.ids import derive
from tests.simulation.plane import INSTALL
from tests.simulation.stories import Scene, Story
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

STRANGERS_STAY = Invariant("strangers stay", "what bears another install's tag is never touched")
ORPHANS_GO = Invariant("orphans go", "what bears our tag and belongs to no instance is given back")


class Orphans(Story):
    likely = 0.5

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._orphans: set[str] = set()
        self._strangers: set[str] = set()

    def plan(self) -> None:
        for number in range(self.rng.randint(1, 2)):
            self.sometime(lambda number=number: self._leave(INSTALL, number, self._orphans), 0, FAULTY_FOR)  # type: ignore[misc]
        self.sometime(lambda: self._leave("somebody else", 0, self._strangers), 0, FAULTY_FOR)

    def _leave(self, install: str, number: int, where: set[str]) -> None:
        """A machine whose instance this plane doesn't know: a table restored from an old copy, say."""
        owner = derive(install, "unheard of", self.world.seed, number)
        tags = {"install": install, "project": self.scene.projects[0].id, "instance": owner, "epoch": "0"}
        offer = self.rng.choice(self.site.cloud.offers())
        request = CreateRequest(
            token=derive(owner, "create"),
            name=f"left-{owner[:8]}",
            tags=tuple((f"dstack-{name}", value) for name, value in tags.items()),
            offer=offer,
            instance_id=owner,
            user_data=user_data("http://plane", owner, "no token of this plane", "0" * 64),
            disk_mib=1,
        )
        self.world.note(f"left by {'us' if install == INSTALL else 'a stranger'}")
        self.scene.ask(lambda: where.update(self._stays(handle.id) for handle in self.site.cloud.create(request)))
        where.discard("")

    def _stays(self, id: str) -> str:
        """Its id, unless there was no room for it after all: then it goes by itself."""
        body = next(body for body in self.site.cloud.resources() if body["id"] == id)
        return "" if body.get("short") else id

    def unfinished(self) -> Iterator[Violation]:
        there = {body["id"] for body in self.site.cloud.resources()} if self._orphans else set()
        for left in sorted(self._orphans & there):
            yield ORPHANS_GO.broken(f"{left} is still there")

    def verify_at_end(self) -> None:
        there = {body["id"] for body in self.site.cloud.resources()}
        if self._strangers - there:
            raise STRANGERS_STAY.broken(f"{sorted(self._strangers - there)} was given back")
