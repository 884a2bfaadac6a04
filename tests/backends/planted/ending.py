"""Faults of `terminate`."""

from __future__ import annotations

from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError, Gone
from tests.backends.planted.port import PortFault, noticed_by


@noticed_by(
    "terminate_is_repeated_until_gone",
    "a_running_machine_ends",
    "every_single_handle_can_be_ended",
    "the_order_of_ending_doesnt_matter",
    "what_has_ended_isnt_listed",
    "nothing_else_ends_with_it",
    "what_ended_is_created_anew_only_by_another_epoch",
)
class EndsNothing(PortFault):
    def terminate(self, handle: Handle) -> None:
        """As if it had been requested."""


@noticed_by("terminate_is_repeated_until_gone", "a_running_machine_ends", "the_order_of_ending_doesnt_matter")
class CallsEverythingGone(PortFault):
    def terminate(self, handle: Handle) -> None:
        raise Gone(handle.id)


@noticed_by("an_end_is_a_request_and_not_proof")
class TakesTheRequestForProof(PortFault):
    def terminate(self, handle: Handle) -> None:
        self.inner.terminate(handle)
        raise Gone(handle.id)


@noticed_by("unknown_handle_is_gone", "what_was_lost_is_gone", "terminate_is_repeated_until_gone")
class NeverCallsAnythingGone(PortFault):
    def terminate(self, handle: Handle) -> None:
        try:
            self.inner.terminate(handle)
        except Gone:
            return


@noticed_by("what_doesnt_show_yet_isnt_called_gone")
class DescribesBeforeItEnds(PortFault):
    def terminate(self, handle: Handle) -> None:
        try:
            self.inner.describe([handle])
        except BackendError as error:
            raise Gone(handle.id) from error
        self.inner.terminate(handle)


@noticed_by("a_failure_is_never_taken_for_an_end")
class TakesAFailureForAnEnd(PortFault):
    def terminate(self, handle: Handle) -> None:
        try:
            self.inner.terminate(handle)
        except BackendError as error:
            raise Gone(error.message) from error


@noticed_by("nothing_else_ends_with_it")
class EndsAllThatIsOwned(PortFault):
    def terminate(self, handle: Handle) -> None:
        for owned in list(self.inner.list_owned()):
            if owned.handle.id != handle.id:
                self.inner.terminate(owned.handle)
        self.inner.terminate(handle)
