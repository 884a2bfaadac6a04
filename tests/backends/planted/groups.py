"""Faults of placement groups."""

from __future__ import annotations

from chalicelib.backends.spi import GroupRequest
from chalicelib.domain.instances import Handle
from chalicelib.errors import InUse
from tests.backends.planted.port import PortFault, forgotten, noticed_by


@noticed_by("a_group_that_exists_is_adopted")
class MakesAGroupEachTime(PortFault):
    def create_group(self, request: GroupRequest) -> Handle:
        return self.inner.create_group(forgotten(request))  # type: ignore[no-any-return]


@noticed_by("a_group_goes_once_its_machines_are_gone")
class HidesThatAGroupIsInUse(PortFault):
    def delete_group(self, handle: Handle) -> None:
        try:
            self.inner.delete_group(handle)
        except InUse:
            return


@noticed_by("a_group_without_machines_can_be_deleted_at_once", "a_group_goes_once_its_machines_are_gone")
class DeletesNoGroup(PortFault):
    def delete_group(self, handle: Handle) -> None:
        """As if it had been requested."""
