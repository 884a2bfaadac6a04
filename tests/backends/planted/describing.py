"""Faults of `describe`, `describe_several` and `watch`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.backends.spi import Machine, MachineChange
from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError, ContainerFailed, Gone, InsufficientCapacity, Transient
from tests.backends.planted.port import PortFault, noticed_by

RUNS = Machine("running", "machine.example", "10.0.0.1")


class OtherDescription(PortFault):
    def changed(self, machine: Machine) -> Machine:
        raise NotImplementedError

    def describe(self, handles: Sequence[Handle]) -> Machine:
        return self.changed(self.inner.describe(handles))


@noticed_by("a_machine_is_pending_before_it_runs")
class CallsAStartingMachineRunning(OtherDescription):
    def changed(self, machine: Machine) -> Machine:
        return replace(machine, state="running")


@noticed_by("created_machine_runs_in_time")
class CallsARunningMachinePending(OtherDescription):
    def changed(self, machine: Machine) -> Machine:
        return replace(machine, state="pending")


@noticed_by("a_running_machine_has_an_address")
class NamesNoAddress(OtherDescription):
    def changed(self, machine: Machine) -> Machine:
        return replace(machine, hostname="")


@noticed_by("a_running_machine_has_an_address")
class NamesNoInternalAddress(OtherDescription):
    def changed(self, machine: Machine) -> Machine:
        return replace(machine, internal_ip="")


@noticed_by("the_order_of_the_handles_doesnt_matter", "a_running_machine_has_an_address")
class NamesAnotherAddressEachTime(OtherDescription):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._count = itertools.count(1)

    def changed(self, machine: Machine) -> Machine:
        return replace(machine, internal_ip=f"10.0.0.{next(self._count)}")


@noticed_by("notice_is_passed_on_and_the_machine_goes", "notice_to_one_is_not_given_to_others")
class PassesNoNoticeOn(OtherDescription):
    def changed(self, machine: Machine) -> Machine:
        return replace(machine, interrupted=False)


@noticed_by("notice_to_one_is_not_given_to_others")
class GivesANoticeToAll(OtherDescription):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._given = False

    def changed(self, machine: Machine) -> Machine:
        self._given = self._given or machine.interrupted
        return replace(machine, interrupted=self._given)


@noticed_by("each_machine_is_described_by_itself")
class RemembersOneDescription(OtherDescription):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._first: Machine | None = None

    def changed(self, machine: Machine) -> Machine:
        if machine.state == "running":
            self._first = self._first or machine
        return self._first or machine


@noticed_by(
    "a_machine_that_doesnt_show_yet_isnt_lost",
    "a_machine_that_is_ended_is_gone_in_the_end",
    "a_machine_that_is_lost_is_gone",
    "notice_is_passed_on_and_the_machine_goes",
)
class CallsAMissingMachineRunning(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        try:
            return self.inner.describe(handles)  # type: ignore[no-any-return]
        except (Gone, Transient):
            return RUNS


@noticed_by("a_late_stockout_is_a_lack_of_capacity")
class HidesWhyAMachineWasRefused(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        try:
            return self.inner.describe(handles)  # type: ignore[no-any-return]
        except Gone as error:
            raise Gone(error.message) from error


@noticed_by("a_machine_that_is_lost_is_gone")
class BlamesCapacityForEveryLoss(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        try:
            return self.inner.describe(handles)  # type: ignore[no-any-return]
        except Gone as error:
            raise Gone(error.message, refused=InsufficientCapacity) from error


@noticed_by("a_spot_machine_that_is_taken_back_is_gone_and_leaves_nothing")
class BlamesTheJobForEveryLoss(PortFault):
    def describe(self, handles: Sequence[Handle]) -> Machine:
        try:
            return self.inner.describe(handles)  # type: ignore[no-any-return]
        except Gone as error:
            raise Gone(error.message, refused=ContainerFailed) from error


@noticed_by("several_are_described_as_each_would_be_alone")
class DescribesSeveralInAnyOrder(PortFault):
    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return list(reversed(self.inner.describe_several(machines)))


@noticed_by("several_are_described_as_each_would_be_alone")
class DescribesOneOfSeveral(PortFault):
    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return list(self.inner.describe_several(machines[:1])) * len(machines)


@noticed_by("a_call_about_several_fails_in_our_words")
class TakesAFailureForTheEndOfSeveral(PortFault):
    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        try:
            found: list[Machine | BackendError] = list(self.inner.describe_several(machines))
        except BackendError as error:
            return [Gone(error.message) for _ in machines]
        return [Gone(each.message) if isinstance(each, BackendError) else each for each in found]


@noticed_by("a_watch_reports_that_a_machine_runs_and_that_it_is_gone")
class ReportsChangesOfOthers(PortFault):
    def watching(self, changed: Callable[[Sequence[MachineChange]], None], install: str) -> Callable[[], None]:
        end: Callable[[], None] = self.inner.watch(
            lambda changes: changed([replace(each, instance_id="another") for each in changes]), install
        )
        return end


@noticed_by("a_watch_reports_that_a_machine_runs_and_that_it_is_gone")
class ReportsWhatRunsAsGone(PortFault):
    def watching(self, changed: Callable[[Sequence[MachineChange]], None], install: str) -> Callable[[], None]:
        end: Callable[[], None] = self.inner.watch(
            lambda changes: changed([replace(each, gone=True) for each in changes]), install
        )
        return end
