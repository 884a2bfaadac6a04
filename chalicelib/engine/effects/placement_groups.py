"""Placement groups: created by the purchases of machines that join them, deleted once they are empty.

`of_machine` is repeated by every purchase in the group until its handle is recorded in the fleet. A group whose
response was lost has the same name, and is adopted; if it isn't needed any more, the deletion finds it by its tag.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

from chalicelib.backends.spi import Backend, GroupRequest, PlacementGroups
from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, PlacementGroup
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle, Instance
from chalicelib.domain.owner import CALLED, OwnedKind, Owner, same_install
from chalicelib.engine.effects.context import EffectContext, failure_fields, translated
from chalicelib.errors import BackendError, Conflict, Gone, InUse, Transient
from chalicelib.planning.kernel.plan import Effect, Outcome
from chalicelib.planning.placing.placement_groups import DeleteGroup, GroupLeft, GroupNotDeleted, changed, group_of
from chalicelib.store import nouns

log = logging.getLogger(__name__)


def of_machine(here: EffectContext, instance: Instance, backend: Backend) -> Handle | None:
    """The placement group for the machine, which is created unless it exists; None: it needs none."""
    if not instance.placement_group or not isinstance(backend, PlacementGroups):
        return None
    fleet = nouns.find(here.store, Fleet, keys.fleet(instance.fleet_id))
    group = group_of(fleet, instance.placement_group) if fleet else None
    if fleet is None or group is None or group.leaving:  # its instance has ended
        raise Transient(f"the placement group of {instance.name} isn't needed any more")
    if group.handle is not None:
        return group.handle
    with translated(instance.name):
        handle = backend.create_group(_request(here, fleet, group, instance))
    return _checkpoint(here, fleet.id, group.id, handle, backend)


def _request(here: EffectContext, fleet: Fleet, group: PlacementGroup, instance: Instance) -> GroupRequest:
    owner = Owner(OwnedKind.group, here.install_id, fleet.project_id, group.id, fleet_id=fleet.id)
    return GroupRequest(
        token=derive(f"{here.install_id}/{fleet.project_id}/{group.id}", "create"),
        name=owner.name,
        tags=(*owner.tags, (CALLED, fleet.name)),
        offer=instance.offer,
        zones=instance.offer.availability_zones,
    )


def _checkpoint(here: EffectContext, fleet_id: str, group_id: str, handle: Handle, backend: PlacementGroups) -> Handle:
    """Record the handle in the fleet. If another process recorded one first, return that one."""
    while True:
        fleet = nouns.find(here.store, Fleet, keys.fleet(fleet_id))
        group = group_of(fleet, group_id) if fleet else None
        if fleet is None or group is None:
            _give_back(backend, handle)
            raise Transient(f"placement group {handle.id} isn't needed any more")
        if group.handle is not None:
            return group.handle
        try:
            here.store.commit([nouns.put(changed(fleet, group_id, handle=handle, made_at=here.clock.now()))])
        except Conflict:
            continue  # lost a race; each loss is somebody else's progress, so this loop ends
        return handle


def _give_back(backend: PlacementGroups, handle: Handle) -> None:
    try:
        backend.delete_group(handle)
    except Gone:
        return
    except BackendError as error:  # the sweep finds it by its tag
        log.error("placement group %s couldn't be deleted: %s", handle.id, error)


class GroupEffects:
    effects: ClassVar[Mapping[type[Effect], str]] = {DeleteGroup: "delete"}

    def __init__(self, here: EffectContext) -> None:
        self.here = here

    def delete(self, effect: DeleteGroup) -> Outcome | None:
        fleet = nouns.find(self.here.store, Fleet, keys.fleet(effect.unit.partition("/")[2]))
        group = group_of(fleet, effect.group) if fleet else None
        if group is None or not group.leaving:
            log.info("%s is too late", effect)
            return None
        backend = self.here.backends.of(effect.project_id, effect.backend)
        if not isinstance(backend, PlacementGroups):
            return GroupLeft(effect.unit, group.id)  # nor did it when this one was ordered
        try:
            with translated(group.id):
                going = self._request(group, backend)
        except BackendError as error:
            return GroupNotDeleted(effect.unit, *failure_fields(error), group.id)
        return GroupLeft(effect.unit, group.id, going)

    def _request(self, group: PlacementGroup, backend: PlacementGroups) -> str:
        """Request the deletion. Returns what is left of the group."""
        handles = [group.handle] if group.handle is not None else []
        owned = (one for one in backend.list_owned_groups() if same_install(one.install, self.here.install_id))
        handles += [one.handle for one in owned if one.group_id == group.id and one.handle not in handles]
        going = ""
        for handle in handles:
            try:
                backend.delete_group(handle)
            except Gone:
                continue
            except InUse as error:  # by a machine that has just ended, or by a stranger's
                going = str(error)
            else:
                going = f"{handle.kind} {handle.id} is being removed"
        return going
