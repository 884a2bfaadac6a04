"""Resources by their ids, and their operations, which say why there is none, and whether one that doesn't show may be
there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit import visibility
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.errors import of_status
from chalicelib.backends.nebius.facts import FACTS
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import from_iso
from chalicelib.errors import BackendError, Gone, Transient, Unfit

CLUSTERS = "compute.v1.GpuClusterService"
History = Sequence[Mapping[str, Any]]  # the first first


_OTHERS = ("update", "delete", "start", "stop", "attach", "detach", "resize", "move")  # what operations do
_IDS = {  # how the ids begin
    "compute.v1.InstanceService": "computeinstance-",
    "compute.v1.DiskService": "computedisk-",
    CLUSTERS: "computegpucluster-",
}


class Operations:
    def __init__(self, client: NebiusClient, now: Now) -> None:
        self._client, self._now = client, now

    def of(self, handle: Handle) -> History:
        try:
            wanted = {"resource_id": handle.id}
            listed = list(self._client.listed("common.v1.OperationService", wanted, items="operations", meanings=None))
        except Gone:
            return ()
        return sorted(listed, key=lambda each: from_iso(each["created_at"]))

    def found(self, service: str, handle: Handle) -> Mapping[str, Any]:
        """The resource. Raises Gone only if there is none, and not while it may not show yet."""
        try:
            return self._client.call(
                service, "Get", {"id": handle.id}, region=handle.data.get("region", ""), what=handle.id
            )
        except Gone:
            history = self.of(handle)
            if failure(history, handle) is None:
                self.check_settled(handle, history)
            raise
        except Unfit as error:
            if self.is_possible(service, handle):
                raise
            raise Gone(f"Nebius has no {handle.id}.") from error

    @staticmethod
    def is_possible(service: str, handle: Handle) -> bool:
        """Could this be the id of such a resource?"""
        return handle.id.startswith(_IDS[service])

    def check_settled(self, handle: Handle, history: History) -> None:
        """Raises Transient if it was created so lately that it may not show yet."""
        visibility.check_settled([handle], self._now(), FACTS.visibility_lag, "Nebius")
        if not history:
            return
        begun = from_iso(history[0]["created_at"])
        if "status" not in history[0] or self._now() - begun < FACTS.visibility_lag:
            raise Transient(f"Nebius doesn't show {handle.id} yet.")


def failure(history: History, handle: Handle) -> BackendError | None:
    """Why its creation failed; None if it didn't, or hasn't yet, or Nebius has forgotten it: old operations go."""
    if not history or not _creates(history[0]):
        return None
    return of_status(history[0].get("status", {}), f"creating {handle.id}", handle.data.get("region", ""))


def _creates(operation: Mapping[str, Any]) -> bool:
    """Taken as one if it doesn't say that it is another."""
    said = f"{operation.get('request', {}).get('@type', '')} {operation.get('description', '')}".lower()
    return "create" in said or not any(each in said for each in _OTHERS)
