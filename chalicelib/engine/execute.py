"""Effects: what is done to clouds after its intent is committed, and what came of it.

No choice is made here. A backend translates its provider's words into our errors; one table below says what each means;
`planning.decide_outcome` decides what follows. Three rules keep the promises (nothing leaks, nothing is bought twice):

Rule 1: only the committer of a purchase executes it, and it begins no call that might still run when others may act: a
purchase found with another `act_until`, or too late, is left to the pass that comes after `act_until`.
Rule 2: a resource is written into the instance before the next one is made. If the instance isn't wanted any more by
then, the resource is written down all the same and the purchase ends there.
Rule 3: "ended" is said only when every handle is Gone and nothing at the provider bears the instance's tag, at a moment
when nothing can be hidden by an unanswered purchase or the provider's lag.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from chalicelib.backends.spi import Backend, CreateRequest, Machine, Owned
from chalicelib.domain.boot_script import user_data
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from chalicelib.engine.bootstrap import bootstrap_token
from chalicelib.engine.commit import Committer
from chalicelib.engine.decisions import Decisions
from chalicelib.engine.load import Reader
from chalicelib.engine.ports import Clock, News, Wake
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Conflict,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    MissingPermission,
    QuotaExceeded,
    Throttled,
    Transient,
)
from chalicelib.planning.plan import (
    Create,
    Created,
    CreateFailed,
    Describe,
    Described,
    Effect,
    Ended,
    EndFailed,
    Outcome,
)
from chalicelib.store import keys, nouns
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

ASK_SOON = 5.0  # seconds: most machines are gone within half a minute
EARLY_ASKS = 4  # after so many the decision's own, longer pauses hold
ATTEMPTS = 8  # fresh looks after a conflict


@dataclass(frozen=True)
class Meaning:
    """What a provider's error says about the effect that met it."""

    name: str  # the error in an outcome
    settled: bool  # True: certainly nothing was made by the call. False: unknown, look for it later
    retry_after: float = 0.0  # seconds, where the provider says nothing better


# The one table: the first class that fits, from the top.
MEANINGS: tuple[tuple[type[BackendError], Meaning], ...] = (
    (InsufficientCapacity, Meaning("InsufficientCapacity", settled=True)),
    (QuotaExceeded, Meaning("QuotaExceeded", settled=True)),
    (InvalidCredentials, Meaning("InvalidCredentials", settled=True, retry_after=60.0)),
    (MissingPermission, Meaning("MissingPermission", settled=True, retry_after=60.0)),
    (AlreadyThere, Meaning("AlreadyThere", settled=False, retry_after=30.0)),  # perhaps by our own earlier call
    (Throttled, Meaning("Throttled", settled=True, retry_after=5.0)),
    (Gone, Meaning("Gone", settled=False, retry_after=5.0)),
    (Transient, Meaning("Transient", settled=False, retry_after=5.0)),
    (BackendError, Meaning("BackendError", settled=False, retry_after=30.0)),
)


def meaning(error: BackendError) -> Meaning:
    return next(found for kind, found in MEANINGS if isinstance(error, kind))


@contextmanager
def translated(instance: Instance) -> Iterator[None]:
    """A call to a backend. What it fails to translate is told in full, and then taken for an unknown outcome."""
    try:
        yield
    except BackendError:
        raise
    except Exception as error:
        log.exception("a call about %s failed in a way its backend doesn't translate", instance.name)
        raise Transient(f"the backend failed unexpectedly ({type(error).__name__}: {error})") from error


class Executor:
    """Executes one effect at a time; any number of executors may run."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        backends: Mapping[str, Backend],
        *,
        install_id: str,
        install_key: bytes,
        wake: Wake,
        server_url: str = "",
        news: News | None = None,
        decisions: Decisions | None = None,
    ) -> None:
        self.store, self.clock, self.backends, self.wake = store, clock, backends, wake
        self.install_id, self.install_key, self.server_url = install_id, install_key, server_url
        self.decisions = decisions or Decisions()
        self.read = Reader(store, {name: backend.facts for name, backend in backends.items()})
        self._news = news or _nobody_waits

    def execute(self, effect: Effect) -> None:
        """Do it, and commit what came of it, and whatever that asks for next."""
        todo = _Todo([effect])
        committer = Committer(self.store, todo, self._news)
        while todo.effects:
            self._one(todo.effects.popleft(), committer)

    def _one(self, effect: Effect, committer: Committer) -> None:
        instance = nouns.find(self.store, Instance, keys.instance(effect.instance_id))
        if instance is None or instance.status is InstanceStatus.terminated:
            log.info("%s comes too late: its instance has ended", effect)
            return
        backend = self.backends.get(instance.offer.backend)
        if backend is None:
            log.error("instance %s is of backend %s, which isn't configured", instance.name, instance.offer.backend)
            backend = Unconfigured(instance.offer.backend)
        if isinstance(effect, Create):
            outcome = self._create(effect, instance, backend)
            current = _same_purchase(instance, effect)
        elif isinstance(effect, Describe):
            outcome, current = self._describe(instance, backend), _same_epoch(instance)
        else:
            outcome, current = self._terminate(instance, backend), _same_epoch(instance)
        if outcome is not None:
            self._conclude(outcome, current, committer)

    # --- buy ---------------------------------------------------------------------------------------------------------

    def _create(self, effect: Create, instance: Instance, backend: Backend) -> Outcome | None:
        if not self._may_call(instance, effect, backend):
            return None
        try:
            with translated(instance):
                making = backend.create(self.request(instance))
            while self._may_call(instance, effect, backend):
                with translated(instance):
                    handle = next(making, None)
                if handle is None:
                    return Created(instance.id)
                found = self._checkpoint(instance, [handle], backend)
                if found is None:
                    return None
                instance = found
        except BackendError as error:
            return self._create_failed(instance, error)
        log.info("the purchase of %s stops here: it isn't wanted any more, or it took too long", instance.name)
        return None

    def _create_failed(self, instance: Instance, error: BackendError) -> Outcome:
        means = meaning(error)
        # What is unknown is told as Transient: it may have been made, so it is looked for before another is tried.
        name = means.name if means.settled else "Transient"
        return CreateFailed(instance.id, name, str(error), getattr(error, "retry_after", means.retry_after))

    def _may_call(self, instance: Instance, effect: Create, backend: Backend) -> bool:
        """Is this purchase still ours, and is there time for one more call before others may act?"""
        if instance.status is not InstanceStatus.pending or instance.act_until != effect.act_until:
            return False
        spare = backend.facts.visibility_lag + backend.facts.create_timeout // 2
        return instance.act_until is not None and self.clock.now() <= instance.act_until - spare

    def request(self, instance: Instance) -> CreateRequest:
        """The same instance and epoch give the same request, byte for byte: everything in it was fixed at purchase."""
        owner = f"{self.install_id}/{instance.project_id}/{instance.id}/{instance.epoch}"
        return CreateRequest(
            token=derive(owner, "create"),
            name=f"dstack-{instance.name}-{instance.id[:8]}-{instance.epoch}",
            tags=(
                ("dstack-install", self.install_id),
                ("dstack-project", instance.project_id),
                ("dstack-instance", instance.id),
                ("dstack-epoch", str(instance.epoch)),
                *sorted((name, value) for name, value in instance.tags.items() if not name.startswith("dstack-")),
            ),
            offer=instance.offer,
            instance_id=instance.id,
            user_data=user_data(
                self.server_url, instance.id, bootstrap_token(self.install_key, instance.id, instance.epoch)
            ),
            disk_mib=instance.offer.instance.resources.disk.size_mib,
            zones=instance.offer.availability_zones,
        )

    def _checkpoint(self, instance: Instance, handles: Iterable[Handle], backend: Backend) -> Instance | None:
        """Write these handles into the instance. None when it ended meanwhile: then they are given back at once."""
        while True:
            current = nouns.find(self.store, Instance, keys.instance(instance.id))
            if current is None or current.epoch != instance.epoch or current.status is InstanceStatus.terminated:
                log.error("instance %s ended while its machine was made: giving the machine back", instance.name)
                for handle in handles:
                    _give_back(backend, handle)
                return None
            known = {(handle.kind, handle.id) for handle in current.handles}
            new = tuple(handle for handle in handles if (handle.kind, handle.id) not in known)
            if not new:
                return current
            saved = current.with_(handles=current.handles + new)
            try:
                self.store.commit([nouns.put(saved)])
            except Conflict:
                continue  # somebody was quicker; each loss is somebody else's progress, so this ends
            return saved.with_(version=current.version + 1)

    # --- look --------------------------------------------------------------------------------------------------------

    def _describe(self, instance: Instance, backend: Backend) -> Outcome:
        try:
            with translated(instance):
                machine = backend.describe(instance.handles)
        except Gone:
            lag_over = instance.created_at + backend.facts.create_timeout + backend.facts.visibility_lag
            hidden = self.clock.now() < lag_over or not instance.handles
            return Described(instance.id, "pending" if hidden else "gone")
        except BackendError as error:
            return _end_failed(instance, error)
        return Described(
            instance.id, machine.state, machine.hostname, machine.internal_ip, interrupted=machine.interrupted
        )

    # --- give back ---------------------------------------------------------------------------------------------------

    def _terminate(self, instance: Instance, backend: Backend) -> Outcome | None:
        if instance.status is not InstanceStatus.terminating:
            return None
        # Asked before the listing: a purchase that was still open then may have made something the listing missed.
        wait = (instance.act_until or 0) - self.clock.now()
        try:
            with translated(instance):
                listed = list(backend.list_owned(instance.id))
        except BackendError as error:
            return _end_failed(instance, error)
        owned = [o.handle for o in listed if (o.install, o.instance_id) == (self.install_id, instance.id)]
        found = self._checkpoint(instance, owned, backend)
        if found is None:
            return None
        failed = None
        for handle in reversed(found.handles):  # what was made last may depend on what was made first
            try:
                with translated(instance):
                    backend.terminate(handle)
            except Gone:
                continue
            except BackendError as error:
                failed = failed or _end_failed(instance, error)
            else:
                going = f"{handle.kind} {handle.id} is being removed"
                soon = ASK_SOON if instance.stop_attempts <= EARLY_ASKS else 0.0
                failed = failed or EndFailed(instance.id, "StillGoing", going, soon)
        if failed is None and wait > 0:
            return EndFailed(instance.id, "StillGoing", "its purchase may still be under way", wait / SECOND)
        return failed or Ended(instance.id)

    # --- what came of it ---------------------------------------------------------------------------------------------

    def _conclude(self, outcome: Outcome, current: Callable[[Instance], bool], committer: Committer) -> None:
        for _ in range(ATTEMPTS):
            snapshot = self.read.instance(outcome.instance_id, self.clock.now())
            if snapshot is None or not current(snapshot.instance):
                log.info("%s is about an instance that has moved on", outcome)
                return
            plan = self.decisions.checked(snapshot, self.decisions.outcome(snapshot, outcome))
            done = committer.commit(plan)
            if done.wake:
                self.wake(done.wake)
            if not done.lost:
                return
        log.warning("%s was not written after %d tries: the next pass finds out by itself", outcome, ATTEMPTS)
        self.wake([f"instance/{outcome.instance_id}"])


class _Todo:
    """Effects of an outcome are executed by whoever concluded it: it is their committer."""

    def __init__(self, effects: Iterable[Effect]) -> None:
        self.effects = deque(effects)

    def submit(self, effect: Effect) -> None:
        self.effects.append(effect)


class Unconfigured:
    """Stands in for a backend that was taken out of the configuration while instances of it live: every call says so,
    and is repeated until it is put back."""

    def __init__(self, name: str) -> None:
        self.facts = BackendFacts(name=name)

    def _refuse(self) -> InvalidCredentials:
        return InvalidCredentials(f"the backend {self.facts.name} isn't configured", hint="Configure it again.")

    def check(self) -> None:
        raise self._refuse()

    def offers(self) -> Sequence[Offer]:
        return ()

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        raise self._refuse()

    def describe(self, handles: Sequence[Handle]) -> Machine:
        raise self._refuse()

    def terminate(self, handle: Handle) -> None:
        raise self._refuse()

    def list_owned(self, instance_id: str | None = None) -> Iterator[Owned]:
        raise self._refuse()

    def close(self) -> None:
        return None


def _end_failed(instance: Instance, error: BackendError) -> EndFailed:
    means = meaning(error)
    return EndFailed(instance.id, means.name, str(error), getattr(error, "retry_after", means.retry_after))


def _give_back(backend: Backend, handle: Handle) -> None:
    try:
        backend.terminate(handle)
    except Gone:
        return
    except BackendError as error:  # the orphan hunt finds it by its tag
        log.error("%s %s couldn't be given back: %s", handle.kind, handle.id, error)


def _same_purchase(instance: Instance, effect: Create) -> Callable[[Instance], bool]:
    return lambda now: now.epoch == instance.epoch and now.act_until == effect.act_until


def _same_epoch(instance: Instance) -> Callable[[Instance], bool]:
    return lambda now: now.epoch == instance.epoch


def _nobody_waits(instance_ids: Iterable[str]) -> None:
    """Where the executor runs apart from the long polls, an agent hears of a change at its next sync."""
