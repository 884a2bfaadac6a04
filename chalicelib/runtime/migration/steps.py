"""The steps of a migration. What was done is in the two fences alone, so each step finds out what is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from chalicelib.domain.fences import Fence, FenceState
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros
from chalicelib.domain.keys import STATUS
from chalicelib.engine.ports import Clock
from chalicelib.errors import Refused
from chalicelib.store import copying, nouns
from chalicelib.store.blobs import Blobs
from chalicelib.store.copying import Digest, FencedStore
from chalicelib.store.fences import fence_of, save
from chalicelib.store.logs import LogStore
from chalicelib.store.port import Put, Record, Store

PASSES = 5  # over everything while the source decides, at most
LITTLE = 200  # changes that the last step can take over at once
TO_FIND: Micros = 15 * MINUTE  # that agents have to find the control plane at its new place
VERIFIED: Micros = 1 * DAY  # records that expire within it may be gone at one side, and aren't compared
WORK = ("run/", "fleet/", "instance/", "volume/", "gateway/")  # begin the partitions of what a new place can't have


@dataclass
class Place:
    """Where a control plane is, or shall be."""

    name: str  # for people
    store: Store
    blobs: Blobs
    logs: Callable[[Store], LogStore]  # over this store
    keys: tuple[bytes, bytes] = field(repr=False)  # the install's, and the master key
    agents_url: str
    people_url: str
    settle: Callable[[], None]  # returns once nothing that began before the fence can still write or act
    watched: bool = False  # as in its `Pace`: how agents that don't report are found

    @property
    def first(self) -> str:
        """Its name as a sentence's first words."""
        return self.name[:1].upper() + self.name[1:]


Say = Callable[[str], None]


class Migration:
    def __init__(self, source: Place, target: Place, clock: Clock, new_id: Callable[[], str], say: Say) -> None:
        self.source, self.target = source, target
        self._clock, self._new_id, self._say = clock, new_id, say

    def run(self) -> bool:
        """Do what is left to do. False: it was done already. Raises Refused, or Conflict if somebody else is faster."""
        self._same_keys()
        opened = self._open()
        if opened is None:
            self._say(f"The control plane has moved to {self.target.name} already.")
            return False
        if not opened.ready:  # or what still runs there would take the machines for orphans, while it sees half of all
            self.target.settle()
            opened = save(self.target.store, opened.with_(ready=True))
        into = FencedStore(self.target.store, opened.version)
        if not self._left(opened):
            self._copy_while_it_serves(into)
            self._fence(opened)
        self._say(f"{self.source.first} doesn't decide any more.")
        self._settle_source()
        self._copy(into)
        self._verify()
        self._hand_over(into)
        self._activate(opened)
        self._say(
            f"The control plane is at {self.target.people_url}. {self.source.first} sends agents and people there."
        )
        return True

    def give_up(self) -> None:
        """Go back to the source. Refused once the target decides."""
        there, here = fence_of(self.target.store), fence_of(self.source.store)
        left = here is not None and here.state is FenceState.moved
        if there is None or (here is not None and left and there.migration != here.migration):
            raise Refused(f"{self.target.first} has no migration to give up.", hint="Nothing was changed.")
        if there.decides:
            raise Refused(
                f"{self.target.first} decides already, so this migration can't be given up.",
                hint="Move the control plane back with --back.",
            )
        if there.state is FenceState.receiving:
            before = FenceState.moved if there.agents_url else FenceState.void
            known = "" if here is None else here.migration
            migration = there.migration if before is FenceState.void else known
            save(self.target.store, there.with_(state=before, migration=migration, since=self._clock.now()))
            here = fence_of(self.source.store)  # which a command that still runs may have set meanwhile
        self._take_back(here)
        self._say(f"The migration is given up: {self.source.name} decides, as before.")

    def _take_back(self, here: Fence | None) -> None:
        """Let the source decide again. Only after the target's fence says that it receives nothing any more."""
        if here is not None and here.state is FenceState.moved:
            save(self.source.store, here.with_(state=FenceState.active, since=self._clock.now()))

    # --- the steps ----------------------------------------------------------------------------------------------------

    def _same_keys(self) -> None:
        if self.source.keys != self.target.keys:
            raise Refused(
                f"{self.target.first} has other keys than {self.source.name}, so it could neither open its secrets nor "
                "recognise its machines.",
                hint="Run the same command with --keys, which takes the keys there while nothing uses the place.",
            )

    def _open(self) -> Fence | None:
        """The target's fence, which says that it receives this migration; None if the migration is over."""
        here, there = fence_of(self.source.store), fence_of(self.target.store)
        gone = here if here is not None and here.state is FenceState.moved else None
        if here is not None and here.state in (FenceState.receiving, FenceState.void):
            raise Refused(f"{self.source.first}: {here.problem}", hint=here.hint)
        if there is None:
            self._refuse_unless_empty(gone)
            there = Fence(state=FenceState.void, migration="")
        elif there.decides:
            if gone is not None and gone.migration == there.migration:
                return None
            raise Refused(
                f"{self.target.first} is a control plane that decides, and {self.source.name} is another.",
                hint="Choose a place that isn't used.",
            )
        elif there.state is FenceState.receiving:
            if gone is not None and gone.migration != there.migration:
                raise _elsewhere(self.source, gone)
            if there.source != self.source.name:
                raise Refused(
                    f"{self.target.first} is receiving the control plane of {there.source}.",
                    hint="Finish that migration first, or give it up with --abort.",
                )
            return there
        elif there.state is FenceState.moved and (here is None or here.migration != there.migration):
            raise _elsewhere(self.target, there)
        elif gone is not None and gone.migration != there.migration:
            raise _elsewhere(self.source, gone)
        migration = gone.migration if gone is not None else self._new_id()
        receiving = there.with_(
            state=FenceState.receiving,
            migration=migration,
            source=self.source.name,
            ready=False,
            since=self._clock.now(),
        )
        return save(self.target.store, receiving)

    def _refuse_unless_empty(self, gone: Fence | None) -> None:
        if gone is not None:
            raise _elsewhere(self.source, gone)
        for page in copying.pages(self.target.store):
            used = next((record for record in page if record.key.pk.startswith(WORK)), None)
            if used is not None:
                raise Refused(
                    f"{self.target.first} is in use: it has {used.key}.", hint="Choose a place that isn't used."
                )

    def _left(self, opened: Fence) -> bool:
        """Does the source's fence say already that it has moved?"""
        here = fence_of(self.source.store)
        return here is not None and here.state is FenceState.moved and here.migration == opened.migration

    def _copy_while_it_serves(self, into: Store) -> None:
        for _ in range(PASSES):
            if self._copy(into) <= LITTLE:
                return

    def _copy(self, into: Store) -> int:
        source, target = self.source, self.target
        now = self._clock.now() // SECOND
        blobs = copying.copy_blobs(source.blobs, target.blobs)  # before the records that name them
        records = copying.copy_records(source.store, into, now)
        damaged = copying.copy_logs(source.store, source.logs(source.store), target.logs(into))
        if damaged:
            self._say(f"The logs of these jobs are damaged, and end early: {', '.join(damaged)}")
        self._say(f"Copied: {records} records and {blobs} blobs were different.")
        return records + blobs

    def _fence(self, opened: Fence) -> None:
        here = fence_of(self.source.store) or Fence(state=FenceState.active, migration="")
        moved = here.with_(
            state=FenceState.moved,
            migration=opened.migration,
            ready=False,
            agents_url=self.target.agents_url,
            people_url=self.target.people_url,
            since=self._clock.now(),
        )
        saved = save(self.source.store, moved)
        there = fence_of(self.target.store)
        if there is None or (there.state is not FenceState.receiving and not there.decides):  # --abort, just before
            self._take_back(saved)
            raise Refused("The migration was given up meanwhile.", hint=f"{self.source.first} decides, as before.")

    def _settle_source(self) -> None:
        """Once is enough, and at a stage it takes minutes: a command that continues after that doesn't wait again."""
        here = fence_of(self.source.store)
        if here is not None and not here.ready:
            self._say("Waiting until what it had begun is over.")
            self.source.settle()
            save(self.source.store, here.with_(ready=True))

    def _verify(self) -> None:
        horizon = (self._clock.now() + VERIFIED) // SECOND
        before, after = (copying.digest(place.store, horizon) for place in (self.source, self.target))
        self._say(f"Verified: {_text(before)} here, {_text(after)} there.")
        lost = copying.missing_blobs(self.source.blobs, self.target.blobs)
        if before != after or lost:
            what = f"the blobs {', '.join(lost[:5])} are missing" if lost else "the records aren't the same"
            raise Refused(
                f"The copy in {self.target.name} isn't complete: {what}.",
                hint="Something else writes there, or to the source. Stop it, and run the command again.",
            )

    def _hand_over(self, into: Store) -> None:
        """Give every agent time to report at the new place, however long the way there has taken, and have every
        machine checked then."""
        until = self._clock.now() + TO_FIND
        for page in copying.pages(self.target.store):
            copying.commit_all(into, (put for record in page for put in self._handed_over(record, until)))

    def _handed_over(self, record: Record, until: Micros) -> Iterator[Put]:
        pk, sk = record.key
        if pk.startswith("instance/") and sk == "presence":
            presence = nouns.read(Presence, record)
            if presence.seen_until:
                yield nouns.put(presence.with_(seen_until=until, watched=self.target.watched))
        elif pk.startswith("instance/") and sk == STATUS:
            instance = nouns.read(Instance, record)
            if instance.status is not InstanceStatus.terminated:
                yield nouns.put(instance.with_(due_at=min(until, instance.due_at or until)))

    def _activate(self, opened: Fence) -> None:
        if not self._left(opened):
            raise Refused(f"{self.source.first} has been taken back meanwhile.", hint="The migration was given up.")
        now = self._clock.now()
        active = Fence(state=FenceState.active, migration=opened.migration, since=now, arrived=now)
        object.__setattr__(active, "version", opened.version)
        save(self.target.store, active)


def _elsewhere(place: Place, fence: Fence) -> Refused:
    return Refused(
        f"{place.first} has moved elsewhere: {fence.problem}", hint="Continue with the place that it has moved to."
    )


def _text(found: Digest) -> str:
    return f"{found.records} records, digest {found.sum:064x}"
