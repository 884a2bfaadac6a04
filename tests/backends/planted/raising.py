"""Faults of errors: of whatever a member of the port raises, at once or while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from chalicelib.backends.spi import CreateRequest
from chalicelib.errors import (
    BackendError,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    MissingPermission,
    QuotaExceeded,
    Throttled,
    Transient,
)
from tests.backends.conformance.provider import Call, Fails
from tests.backends.planted.port import PortFault, case, noticed_by, settings_of

CALLS: tuple[Call, ...] = get_args(Call)


class OtherErrors(PortFault):
    def changed(self, error: BackendError) -> Exception:
        raise NotImplementedError

    def passed_on(self, name: str) -> Any:
        member = getattr(self.inner, name)
        if not callable(member):
            return member

        def call(*args: Any, **named: Any) -> Any:
            try:
                found = member(*args, **named)
            except BackendError as error:
                raise self.changed(error) from error
            return self._read(found) if isinstance(found, Iterator) else found

        return call

    def _read(self, found: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from found
        except BackendError as error:
            raise self.changed(error) from error


@noticed_by(
    *(case("failures_are_told_in_our_words", call=call) for call in CALLS),
    "what_isnt_sold_is_refused",
    "a_call_for_several_fails_in_our_words",
    case("failures_of_groups_are_told_in_our_words", call=lambda backend, request: list(backend.list_owned_groups())),
    case("failures_about_volumes_are_told_in_our_words", call=lambda backend, handle: backend.describe_volume(handle)),
)
class RaisesWhatTheProviderRaises(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        return ConnectionError(error.message)


@noticed_by(*(case("failures_are_told_in_our_words", call=call) for call in CALLS))
class TakesEveryFailureForAnEnd(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        return Gone(error.message)


def _by_each_call(error: Fails) -> Any:
    return (case("each_failure_is_told_as_what_it_is", call=call, error=error) for call in CALLS)


@noticed_by(
    *_by_each_call("InvalidCredentials"),
    *_by_each_call("MissingPermission"),
    *_by_each_call("Throttled"),
    "a_quota_is_a_quota",
)
class CallsEveryFailureTransient(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        known = InvalidCredentials | MissingPermission | Throttled | QuotaExceeded
        return Transient(error.message) if isinstance(error, known) else error


@noticed_by(*_by_each_call("Transient"))
class CallsWhatPassesFinal(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        return InvalidCredentials(error.message) if isinstance(error, Transient) else error


@noticed_by("a_quota_is_a_quota")
class TakesAQuotaForALackOfCapacity(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        return InsufficientCapacity(error.message) if isinstance(error, QuotaExceeded) else error


@noticed_by("no_machine_left_is_a_lack_of_capacity")
class TakesALackOfCapacityForAQuota(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        if isinstance(error, Gone) and error.refused is InsufficientCapacity:
            return Gone(error.message, refused=QuotaExceeded)
        return QuotaExceeded(error.message) if isinstance(error, InsufficientCapacity) else error


@noticed_by("no_machine_left_is_a_lack_of_capacity")
class HidesWhatThereIsNoneOf(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        if isinstance(error, Gone) and error.refused is InsufficientCapacity:
            return Gone("none left", refused=InsufficientCapacity)
        return InsufficientCapacity("none left") if isinstance(error, InsufficientCapacity) else error


@noticed_by(
    *(case("failures_show_none", error=error) for error in get_args(Fails)), "what_cant_be_sent_at_all_shows_none"
)
class ShowsTheBootScriptInErrors(OtherErrors):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._script = ""

    def create(self, request: CreateRequest) -> Iterator[Any]:
        self._script = settings_of(request)
        return self.passed_on("create")(request)  # type: ignore[no-any-return]

    def changed(self, error: BackendError) -> Exception:
        return type(error)(f"{error.message}: {self._script}")
