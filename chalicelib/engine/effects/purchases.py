"""Purchases: creating, describing and terminating machines.

Four rules guarantee that nothing leaks and nothing is bought twice:

Rule 1: only the process that commits a purchase executes it, and it starts no call that might still run when others may
act. A purchase with another `act_until`, or one that is too late, is left to the pass that comes after `act_until`.
Rule 2: a resource is recorded in the instance before the next one is created. If the instance is no longer needed by
then, the resource is recorded all the same, and the purchase ends there.
Rule 3: the check for leftovers covers the handles, the provider's list of resources with the instance's tag, and the
purchase that was in progress when the check began.
Rule 4: the instance is committed before the backend is read, in its current stored state, and a backend is deleted
before its instances are read. So of a simultaneous purchase and deletion, one sees the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from chalicelib.backends.spi import (
    Backend,
    Container,
    CreateRequest,
    CreatesSeveral,
    DescribesSeveral,
    GatewayContainers,
    Machine,
)
from chalicelib.domain import keys
from chalicelib.domain.boot_script import user_data
from chalicelib.domain.bundles import members
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import TRYING, Handle, Instance, InstanceStatus
from chalicelib.domain.owner import CALLED, OwnedKind, Owner, same_install
from chalicelib.engine.effects.containers import Containers, settings
from chalicelib.engine.effects.context import EffectContext, failure_fields, translated
from chalicelib.engine.effects.placement_groups import of_machine
from chalicelib.errors import BackendError, Conflict, Gone, NotYet, Transient, Unfit
from chalicelib.planning.kernel.plan import Effect, Outcome
from chalicelib.planning.kernel.purchases import (
    Bought,
    Create,
    CreateSeveral,
    Describe,
    DescribeSeveral,
    Left,
    NotBought,
    NotDone,
    Seen,
    Terminate,
    may_begin,
    unit_of,
)
from chalicelib.store import nouns

log = logging.getLogger(__name__)


class Purchases:
    effects: ClassVar[Mapping[type[Effect], str]] = {
        Create: "create",
        CreateSeveral: "create_several",
        Describe: "describe",
        DescribeSeveral: "describe",
        Terminate: "terminate",
    }

    def __init__(self, here: EffectContext) -> None:
        self.here = here
        self._containers = Containers(here)

    # --- buy ---------------------------------------------------------------------------------------------------------

    def create(self, effect: Create) -> Outcome | None:
        instance = self._find(effect)
        if instance is None:
            return None
        backend = self.here.backends.of(instance.project_id, effect.backend, now=True)
        epoch = instance.epoch
        if not self.may_begin(instance, effect, backend):
            return None
        try:
            group, container = of_machine(self.here, instance, backend), None
            if instance.offer.is_container:
                with_container = self._containers.container_of(instance)
                if with_container is None:
                    return None
                instance, container = with_container
                if not self._is_current(instance):  # preparing it took its time
                    return None
            with translated(instance.name):
                making = _creates(backend, instance)(self.request(instance, group, container))
            while self.may_begin(instance, effect, backend):
                with translated(instance.name):
                    handle = next(making, None)
                if handle is None:
                    return Bought(effect.unit, epoch, effect.act_until)
                if handle.kind == TRYING:
                    found = self._trying(instance, handle.data["zone"])
                else:
                    found = self.checkpoint(instance, [handle], backend)
                if found is None:
                    return None
                instance = found
        except BackendError as error:
            return NotBought(effect.unit, *failure_fields(error), epoch, effect.act_until)
        log.info("the purchase of %s stops here: it is no longer needed, or it took too long", instance.name)
        return None

    def create_several(self, effect: CreateSeveral) -> Sequence[Outcome]:
        """The outcome of each purchase. If the call takes too long, those that aren't refused have none, and the
        machines are searched for later."""
        found = [(each, self._find(each)) for each in effect.each()]
        backend = self.here.backends.of(effect.project_id, effect.backend, now=True)
        if not isinstance(backend, CreatesSeveral):
            outcomes = (self.create(each) for each, _ in found)
            return [outcome for outcome in outcomes if outcome is not None]
        wanted = {
            self._token(instance): (each, instance)
            for each, instance in found
            if instance is not None and self.may_begin(instance, each, backend)
        }
        containers, refused = self._with_containers(wanted)
        making = {token: each for token, each in wanted.items() if token not in refused}
        if containers:  # each took its time, and the others may have ended meanwhile
            making = {token: each for token, each in making.items() if self._is_current(each[1])}
            wanted = {token: each for token, each in wanted.items() if token in refused or token in making}
        try:
            if making and not self._make(making, containers, refused, backend, backend):
                wanted = {token: wanted[token] for token in refused}
        except BackendError as error:
            refused = {token: refused.get(token, error) for token in wanted}
        return [
            NotBought(each.unit, *failure_fields(refused[token]), instance.epoch, each.act_until)
            if token in refused
            else Bought(each.unit, instance.epoch, each.act_until)
            for token, (each, instance) in wanted.items()
        ]

    def _with_containers(
        self, wanted: dict[str, tuple[Create, Instance]]
    ) -> tuple[dict[str, Container], dict[str, BackendError]]:
        """The containers among those wanted, and what is wrong with some. Those that can't be requested now are no
        longer wanted, and the others are as they are stored now."""
        containers: dict[str, Container] = {}
        refused: dict[str, BackendError] = {}
        for token, (each, instance) in list(wanted.items()):
            if not instance.offer.is_container:
                continue
            try:
                found = self._containers.container_of(instance)
            except BackendError as error:
                refused[token] = error
                continue
            if found is None:
                del wanted[token]
            else:
                wanted[token], containers[token] = (each, found[0]), found[1]
        return containers, refused

    def _is_current(self, instance: Instance) -> bool:
        found = nouns.find(self.here.store, Instance, keys.instance(instance.id))
        return found is not None and found.version == instance.version

    def _make(
        self,
        wanted: dict[str, tuple[Create, Instance]],
        containers: Mapping[str, Container],
        refused: dict[str, BackendError],
        backend: Backend,
        several: CreatesSeveral,
    ) -> bool:
        """Create the machines and record every resource. All may exist by now, so those of an instance that has ended
        are released. False: it took too long."""
        groups: dict[str, Handle | None] = {}
        for _, instance in wanted.values():
            if instance.placement_group not in groups:
                groups[instance.placement_group] = of_machine(self.here, instance, backend)
        requests = [
            self.request(each, groups[each.placement_group], containers.get(token))
            for token, (_, each) in wanted.items()
        ]
        with translated(f"{len(requests)} machines"):
            making = several.create_several(requests)
        effect, last = next(iter(wanted.values()))
        while may_begin(last, effect, backend.facts, self.here.clock.now()):
            with translated(f"{len(requests)} machines"):
                result = next(making, None)
            if result is None:
                return True
            if result.error is not None:
                refused[result.token] = result.error
            elif result.handle is not None:
                self.checkpoint(wanted[result.token][1], [result.handle], backend)
        log.info("the purchase of %d machines stops here: it took too long", len(requests))
        return False

    def may_begin(self, instance: Instance, effect: Create, backend: Backend) -> bool:
        return may_begin(instance, effect, backend.facts, self.here.clock.now())

    def _token(self, instance: Instance) -> str:
        return derive(f"{self.here.install_id}/{instance.project_id}/{instance.id}/{instance.epoch}", "create")

    def request(
        self, instance: Instance, group: Handle | None = None, container: Container | None = None
    ) -> CreateRequest:
        """The request to create it, byte for byte the same for equal instances and epochs: everything in it was fixed
        at the purchase or in this release of the program. Only a placement group that is gone is replaced."""
        here, zone = self.here, group.data.get("zone") if group else None
        facts = here.backends.of(instance.project_id, instance.offer.backend).facts
        notices = facts.notices if instance.offer.instance.resources.spot else ""
        owner = Owner(OwnedKind.instance, here.install_id, instance.project_id, instance.id, instance.epoch)
        return CreateRequest(
            token=self._token(instance),
            name=owner.name,
            tags=(
                *sorted(instance.tags.items()),
                *owner.tags,
                (CALLED, instance.name),
            ),
            offer=instance.offer,
            instance_id=instance.id,
            user_data=user_data(*settings(here, instance), notices) if container is None else "",
            bundle=self._bundle(instance, notices),
            disk_mib=instance.offer.instance.resources.disk.size_mib,
            zones=(zone,) if zone else instance.offer.availability_zones,
            reservation=instance.offer.reservation or None,
            trying=instance.trying,
            open_ports=_ports(instance),
            placement_group=group,
            container=container,
        )

    def _bundle(self, instance: Instance, notices: str) -> tuple[str, ...]:
        """The start scripts of all machines of its purchase, if that is of several."""
        if instance.bundle is None:
            return ()
        each = (instance.with_(id=member) for member in members(instance))
        return tuple(user_data(*settings(self.here, one), notices) for one in each)

    def checkpoint(self, instance: Instance, handles: Iterable[Handle], backend: Backend) -> Instance | None:
        """Record these handles in the instance. None: it has ended meanwhile, and they were released at once."""
        store = self.here.store
        while True:
            current = nouns.find(store, Instance, keys.instance(instance.id))
            if current is None or current.epoch != instance.epoch or current.status is InstanceStatus.terminated:
                log.error(
                    "instance %s ended while its machine was being created: terminating the machine", instance.name
                )
                for handle in handles:
                    _give_back(backend, handle)
                return None
            known = {(handle.kind, handle.id): handle for handle in current.handles}
            found = dict(known)
            for handle in handles:  # one may have been replaced by another of the same name, which its data tell
                before = known.get((handle.kind, handle.id), handle)
                found[handle.kind, handle.id] = handle.with_(data={**before.data, **handle.data})
            if found == known:
                return current
            saved = current.with_(handles=tuple(found.values()))
            try:
                store.commit([nouns.put(saved)])
            except Conflict:
                continue  # lost a race; each loss is somebody else's progress, so this loop ends
            return saved.with_(version=current.version + 1)

    def _trying(self, instance: Instance, zone: str) -> Instance | None:
        """Record the zone to try next. None: the instance has changed, and its purchase ends here."""
        saved = instance.with_(trying=zone)
        try:
            self.here.store.commit([nouns.put(saved)])
        except Conflict:
            return None
        return saved.with_(version=instance.version + 1)

    # --- describe ----------------------------------------------------------------------------------------------------

    def describe(self, effect: Describe | DescribeSeveral) -> Sequence[Outcome]:
        units = effect.units if isinstance(effect, DescribeSeveral) else (effect.unit,)
        backend = self.here.backends.of(effect.project_id, effect.backend)
        found: list[Instance] = []
        outcomes: list[Outcome] = []
        for instance in (each for unit in units if (each := self._find(effect, unit)) is not None):
            try:
                found.append(self._completed(backend, instance))
            except BackendError as error:  # of a list, even one that isn't found: it proves nothing about the machine
                outcomes.append(NotDone(unit_of(instance), *failure_fields(error), instance.epoch))
        return [*outcomes, *self._descriptions(backend, found)]

    def _descriptions(self, backend: Backend, found: Sequence[Instance]) -> Sequence[Outcome]:
        if len(found) < 2 or not isinstance(backend, DescribesSeveral):
            return [_outcome_of(instance, self._described(backend, instance)) for instance in found]
        try:
            with translated(f"{len(found)} machines"):
                descriptions = backend.describe_several([instance.handles for instance in found])
        except Gone as error:  # of the call: of no machine it says that it is gone
            descriptions = [Transient(str(error))] * len(found)
        except BackendError as error:
            descriptions = [error] * len(found)
        return [_outcome_of(instance, answer) for instance, answer in zip(found, descriptions, strict=True)]

    def _completed(self, backend: Backend, instance: Instance) -> Instance:
        """The instance, with the resources that its purchase created and didn't record: the answer was lost, and then
        its agent reported. A description would call the machine gone."""
        if instance.act_until is None or instance.status is InstanceStatus.pending:
            return instance
        with translated(instance.name):
            owned = self._owned(backend, instance)
        return self.checkpoint(instance, owned, backend) or instance

    def _owned(self, backend: Backend, instance: Instance) -> list[Handle]:
        """What the provider lists as created for the instance."""
        listed = backend.list_owned(instance.id, instance.offer.region)
        install = self.here.install_id
        return [
            each.handle for each in listed if same_install(each.install, install) and each.instance_id == instance.id
        ]

    def _described(self, backend: Backend, instance: Instance) -> Machine | BackendError:
        try:
            with translated(instance.name):
                return backend.describe(instance.handles)
        except BackendError as error:
            return error

    # --- release -----------------------------------------------------------------------------------------------------

    def terminate(self, effect: Terminate) -> Outcome | None:
        instance = self._find(effect)
        if instance is None or instance.status is not InstanceStatus.terminating:
            return None
        backend = self.here.backends.of(instance.project_id, effect.backend)
        began = self.here.clock.now()
        try:
            with translated(instance.name):
                owned = self._owned(backend, instance)
        except BackendError as error:
            return NotDone(effect.unit, *failure_fields(error), instance.epoch)
        found = self.checkpoint(instance, owned, backend)
        if found is None:
            return None
        failed, going = None, ""
        for handle in reversed(found.handles):  # what was created last may depend on what was created first
            try:
                with translated(instance.name):
                    backend.terminate(handle)
            except Gone:
                continue
            except NotYet as error:  # nothing is wrong, so the reason for its end isn't replaced by this
                going = going or str(error)
            except BackendError as error:
                failed = failed or NotDone(effect.unit, *failure_fields(error), instance.epoch)
            else:
                going = going or f"{handle.kind} {handle.id} is being removed"
        return failed or Left(effect.unit, instance.epoch, began, instance.act_until, going)

    def _find(self, effect: Effect, unit: str = "") -> Instance | None:
        """The instance of the effect's unit, or of one of its units."""
        unit = unit or effect.unit
        instance = nouns.find(self.here.store, Instance, keys.instance(unit.partition("/")[2]))
        if instance is None or instance.status is InstanceStatus.terminated:
            log.info("%s is too late for %s, which has ended", type(effect).__name__, unit)
            return None
        return instance


def _outcome_of(instance: Instance, answer: Machine | BackendError) -> Outcome:
    unit, epoch = unit_of(instance), instance.epoch
    if isinstance(answer, Gone):
        refused = answer.refused.__name__ if answer.refused else ""
        return Seen(unit, epoch, "gone", refused=refused, message=str(answer))
    if isinstance(answer, BackendError):
        return NotDone(unit, *failure_fields(answer), epoch)
    names = answer.hostname, answer.internal_ip
    return Seen(unit, epoch, answer.state, *names, answer.interrupted, answer.reclaim_at, message=answer.message)


def _creates(backend: Backend, instance: Instance) -> Callable[[CreateRequest], Iterator[Handle]]:
    if not (instance.of_gateway and instance.offer.is_container):
        return backend.create
    if not isinstance(backend, GatewayContainers):
        raise Unfit(f"Gateways can't run in containers of the backend {instance.offer.backend}.")
    return backend.create_gateway


def _ports(instance: Instance) -> tuple[int, ...]:
    """The ports to open, for a machine that is bought for a gateway."""
    seat = instance.gateway
    if seat is None or not instance.of_gateway:
        return ()
    return tuple(port for port in (seat.http_port, seat.https_port) if port is not None)


def _give_back(backend: Backend, handle: Handle) -> None:
    try:
        backend.terminate(handle)
    except Gone:
        return
    except BackendError as error:  # the sweep finds it by its tag
        log.error("%s %s couldn't be terminated: %s", handle.kind, handle.id, error)
