"""Faults of `list_owned`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chalicelib.backends.spi import CreateRequest, Owned
from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError
from tests.backends.conformance.suite import offers_of
from tests.backends.planted.port import PortFault, noticed_by


class OtherList(PortFault):
    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        raise NotImplementedError

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self.changed(self.inner.list_owned(instance_id, region))


@noticed_by("every_resource_bears_the_owner_tag")
class MistakesTheProjectForTheInstall(OtherList):
    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        return (replace(each, install=each.project_id, project_id=each.install) for each in owned)


@noticed_by("the_epoch_is_listed")
class ListsTheFirstEpoch(OtherList):
    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        return (replace(each, epoch=0) for each in owned)


@noticed_by("all_pages_are_listed")
class ListsTheFirstPage(OtherList):
    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        return iter(list(owned)[:2])


@noticed_by("a_leftover_of_a_creation_is_listed", "every_resource_bears_the_owner_tag")
class LeavesTheFirstOut(OtherList):
    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        return iter(list(owned)[1:])


@noticed_by("a_region_that_doesnt_answer_makes_the_list_fail", "a_failure_in_the_middle_makes_the_list_fail")
class HidesThatAListIsIncomplete(OtherList):
    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        try:
            yield from owned
        except BackendError:
            return


@noticed_by("strangers_are_never_taken_for_ours")
class TakesEveryInstallForItsOwn(OtherList):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._install = ""

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        self._install = dict(request.tags)["dstack-install"]
        return self.inner.create(request)  # type: ignore[no-any-return]

    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        return (replace(each, install=self._install) for each in owned)


@noticed_by("what_has_ended_isnt_listed")
class ListsWhatItEverCreated(OtherList):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._listed: dict[str, Owned] = {}

    def changed(self, owned: Iterator[Owned]) -> Iterator[Owned]:
        self._listed |= {each.handle.id: each for each in owned}
        return iter(self._listed.values())

    def terminate(self, handle: Handle) -> None:
        list(self.list_owned())
        self.inner.terminate(handle)


@noticed_by("owned_can_be_asked_of_one_instance", "strangers_are_never_taken_for_ours")
class ListsEveryInstance(PortFault):
    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self.inner.list_owned(None, region)  # type: ignore[no-any-return]


@noticed_by("owned_can_be_asked_of_one_region")
class ListsEveryRegion(PortFault):
    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self.inner.list_owned(instance_id)  # type: ignore[no-any-return]


@noticed_by("all_regions_are_listed")
class ListsOneRegion(PortFault):
    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self.inner.list_owned(instance_id, region or offers_of(self.inner)[0].region)  # type: ignore[no-any-return]
