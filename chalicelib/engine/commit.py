"""Committing plans, step by step: what is written, what that triggers, and what a conflict drops.

Rule 1: an effect is submitted only after the commit that intends it. Rule 2: steps of a plan build on each other, so a
later step is committed against the versions that the earlier ones wrote; when a step loses a conflict, every later step
that touches the same records is dropped with it, and the rest stay. Rule 3: after a conflict, decide again from a fresh
read. Rule 4: steps that touch different records are committed at once, which saves the disk a wait for each; only if
that is refused are they committed one by one.

`RequestCommitter` commits changes that no pass decided: user requests and agent reports. They are plans like any other,
checked against the same rules and committed in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from chalicelib.domain.keys import Key
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.ports import Effects, NotifyAgents, Wake
from chalicelib.engine.read import Reader
from chalicelib.errors import Bug, Conflict, DstackError
from chalicelib.planning.kernel.plan import Effect, Plan, Step
from chalicelib.planning.kernel.purchases import batch_describes
from chalicelib.planning.kernel.snapshot import Snapshot
from chalicelib.store import nouns
from chalicelib.store.port import MAX_CHANGES, Change, Put


@dataclass
class Committed:
    """The result of committing a plan."""

    steps: int = 0
    lost: list[Key] = field(default_factory=list)  # records that somebody else wrote first
    wake: list[str] = field(default_factory=list)  # units that the committed steps wake


@dataclass(frozen=True)
class _Write:
    """A step and the changes that commit it."""

    step: Step
    puts: Sequence[Put]  # of its saves, then of its events
    beside: Sequence[Change] = ()

    @property
    def changes(self) -> Iterator[Change]:
        yield from self.puts
        yield from self.beside

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset(change.key for change in self.changes)


class Committer:
    def __init__(self, read: Reader, kinds: Kinds, effects: Effects, notify_agents: NotifyAgents) -> None:
        self.read, self.kinds, self.effects, self.notify_agents = read, kinds, effects, notify_agents

    def commit(self, plan: Plan, beside: Sequence[Change] = (), caller: str = "") -> Committed:
        """Commit a plan. `beside`: changes committed together with its first step. `caller`: the instance whose agent
        needs no notice, because this commit answers its call."""
        writes = [_Write(step, [nouns.put(noun) for noun in (*step.saves, *step.events)]) for step in plan.steps]
        if beside:
            first = writes[0] if writes else _Write(Step(), ())
            writes[:1] = [replace(first, beside=beside)]
        progress = _Progress(self, caller)
        for together in _batches(writes):
            progress.write(together)
        return progress.done

    def set_off(self, steps: Sequence[Step], caller: str) -> None:
        """Submit the effects of steps that were committed together, and notify the agents concerned."""
        for effect in batch_describes(effect for step in steps for effect in step.effects):
            self.effects.submit(effect)
        saved = (noun for step in steps for noun in step.saves)
        concerned = dict.fromkeys(found for noun in saved for found in self.kinds.listeners(noun))
        concerned.pop(caller, None)
        if concerned:
            self.notify_agents(concerned)


class _Progress:
    """A plan while it is being committed."""

    def __init__(self, committer: Committer, caller: str) -> None:
        self._committer, self._caller = committer, caller
        self._written: dict[Key, int] = {}
        self._lost: set[Key] = set()
        self.done = Committed()

    def write(self, together: Sequence[_Write]) -> None:
        """Commit these steps together; if that is refused, one by one, so that only conflicting ones are lost."""
        standing = [write for write in together if not self._falls(write)]
        changes = [_rebased(change, self._written) for write in standing for change in write.changes]
        try:
            if changes:
                self._committer.read.store.commit(changes)
        except DstackError as refused:
            if len(standing) > 1:
                for write in standing:
                    self.write([write])
            elif isinstance(refused, Conflict):
                self.done.lost += sorted(standing[0].keys)
                self._lost |= standing[0].keys
            else:
                raise
            return
        self._written.update((change.key, change.record.version) for change in changes if isinstance(change, Put))
        for write in standing:
            for noun, put in zip(write.step.saves, write.puts, strict=False):
                self._committer.read.wrote(noun, put.record, self._written[put.key])
            self.done.steps += 1
            self.done.wake += write.step.wake
        self._committer.set_off([write.step for write in standing], self._caller)

    def _falls(self, write: _Write) -> bool:
        """Whether it builds on a step that was lost, and is lost with it."""
        falls = not self._lost.isdisjoint(write.keys)
        if falls:
            self._lost |= write.keys
        return falls


def _batches(writes: Iterable[_Write]) -> Iterator[list[_Write]]:
    """Runs of steps that can be committed together: none builds on another, and their changes fit one commit."""
    batch: list[_Write] = []
    keys: set[Key] = set()
    for write in writes:
        if batch and (len(keys) + len(write.keys) > MAX_CHANGES or not keys.isdisjoint(write.keys)):
            yield batch
            batch, keys = [], set()
        batch.append(write)
        keys |= write.keys
    if batch:
        yield batch


class RequestCommitter:
    def __init__(
        self,
        read: Reader,
        *,
        wake: Wake,
        notify_agents: NotifyAgents,
        kinds: Kinds = KINDS,
        along: Sequence[Change] = (),
    ) -> None:
        """`along`: changes that are committed together with the first plan."""
        self.kinds, self._wake, self.along = kinds, wake, along
        self._committer = Committer(read, kinds, _NoEffects(), notify_agents)

    def take(self, snapshot: Snapshot, plan: Plan, beside: Sequence[Change] = (), *, caller: str = "") -> None:
        """Commit the plan, and wake the units that it wakes. Raises Conflict if somebody else wrote first: the lost
        step isn't written, and the caller reads and decides again."""
        done = self._committer.commit(self.kinds.checked(snapshot, plan), [*beside, *self.along], caller)
        if done.lost:
            raise Conflict(str(done.lost[0]))
        self.along = ()
        self.wake(done.wake)

    def wake(self, units: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(units))
        if wanted:
            self._wake(wanted)


class _NoEffects:
    def submit(self, effect: Effect) -> None:
        raise Bug(f"{effect} is planned where nothing executes it: wake its unit instead")


def _rebased(change: Change, written: Mapping[Key, int]) -> Change:
    """The change on top of what an earlier step of the same plan wrote."""
    version = written.get(change.key)
    if version is None or not isinstance(change, Put):
        return change
    return Put(replace(change.record, version=version + 1), expect=version)
