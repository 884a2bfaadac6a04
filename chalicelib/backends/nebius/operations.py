"""The operations of a resource. They say why there is none, and whether one that doesn't show may be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.errors import of_operation
from chalicelib.backends.nebius.facts import FACTS
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros, from_iso
from chalicelib.errors import BackendError, Gone, Transient

History = Sequence[Mapping[str, Any]]  # the first first


class Operations:
    def __init__(self, client: NebiusClient, now: Callable[[], Micros]) -> None:
        self._client, self._now = client, now

    def of(self, handle: Handle) -> History:
        try:
            listed = list(
                self._client.listed("common.v1.OperationService", {"resource_id": handle.id}, items="operations")
            )
        except Gone:
            return ()
        return sorted(listed, key=lambda each: from_iso(each["created_at"]))

    def check_gone(self, handle: Handle) -> None:
        """Of a resource that Nebius doesn't show. Raises Transient if it may be there all the same."""
        history = self.of(handle)
        if failure(history, handle) is None:
            self.check_settled(handle, history)

    def check_settled(self, handle: Handle, history: History) -> None:
        """Raises Transient if it was created so lately that it may not show yet."""
        if not history:
            return
        begun = from_iso(history[0]["created_at"])
        if "status" not in history[0] or self._now() - begun < FACTS.visibility_lag:
            raise Transient(f"Nebius doesn't show {handle.id} yet.")


def failure(history: History, handle: Handle) -> BackendError | None:
    """Why its creation failed; None if it didn't, or hasn't yet."""
    if not history:
        return None
    return of_operation(history[0].get("status", {}), f"creating {handle.id}", handle.data.get("region", ""))
