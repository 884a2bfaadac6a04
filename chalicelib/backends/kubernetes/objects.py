"""Calls about objects in the namespaces of jobs, which are listed by labels and deleted by their uid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.errors import Gone, MissingPermission

Body = dict[str, Any]
POD = "vm"  # the kind of a pod's handle
_GRACE = 10  # seconds: the agent has nothing left to do when its pod is deleted


class Objects:
    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def _events(self, region: str, body: Body, claim: str = "") -> Sequence[Body]:
        """Those of an object, or of a claim that a pod mounts, from the oldest to the newest. Without the permission
        there are none."""
        selector = f"involvedObject.uid={body['metadata']['uid']}"
        if claim:
            selector = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}"
        path = self._path(region, "events", body["metadata"]["namespace"])
        try:
            found = list(self._clusters.listed(region, path, fieldSelector=selector))
        except MissingPermission:
            return ()
        return sorted(found, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))

    def _delete(self, region: str, kind: str, name: str, uid: str | None, namespace: str | None = None) -> None:
        """Raises Gone if there is nothing of this name, or something newer."""
        options: Body = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if kind == "pods":
            options["gracePeriodSeconds"] = _GRACE
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        self._call(
            region,
            "DELETE",
            kind,
            name,
            body=options,
            meanings={"Conflict": Gone} if uid else None,
            namespace=namespace,
        )

    def _listed(self, region: str, selector: str, kind: str = "pods") -> Iterator[Body]:
        return self._clusters.listed(region, self._path(region, kind), labelSelector=selector)

    def _call(
        self, region: str, method: str, kind: str, *name: str, namespace: str | None = None, **options: Any
    ) -> Body:
        return self._clusters.call(region, method, (*self._path(region, kind, namespace), *name), **options)

    def _path(self, region: str, kind: str, namespace: str | None = None) -> tuple[str, ...]:
        return ("api", "v1", "namespaces", namespace or self._clusters.cluster(region).namespace, kind)
