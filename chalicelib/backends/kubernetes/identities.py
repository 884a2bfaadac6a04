"""Which cluster a context leads to: one that leads elsewhere than before proves nothing about what was created there.

The id of a cluster is, by custom, the `uid` of its namespace `kube-system`. Where that mustn't be read, a context leads
to the same cluster while its address or its certificate authority is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE
from chalicelib.errors import Gone, InvalidCredentials, MissingPermission

ID = "cluster"  # in the data of handles
LASTS = MINUTE


class Identities:
    def __init__(self, clusters: Clusters, now: Now) -> None:
        self._clusters = clusters
        self._ids = LookupCache[str](now, LASTS)

    def data(self, region: str) -> Mapping[str, str]:
        """What a handle says of its cluster."""
        found = self._ids.get(region, lambda: self._ask(region))
        return {ID: found} if found else self._clusters.cluster(region).place

    def handle(self, body: Mapping[str, Any], region: str, kind: str) -> Handle:
        """Of an object."""
        metadata = body["metadata"]
        data = {"region": region, "namespace": str(metadata["namespace"]), "uid": str(metadata["uid"])}
        return Handle(kind=kind, id=str(metadata["name"]), data={**data, **self.data(region)})

    def _ask(self, region: str) -> str:
        try:
            body = self._clusters.call(region, "GET", ("api", "v1", "namespaces", "kube-system"))
        except (MissingPermission, Gone):
            return ""
        return str(body["metadata"]["uid"])

    @contextmanager
    def checked(self, region: str, handle: Handle) -> Iterator[None]:
        """What is gone in another cluster isn't gone."""
        try:
            yield
        except Gone:
            self.check(region, handle)
            raise

    def check(self, region: str, handle: Handle) -> None:
        """Raises InvalidCredentials if the handle is of another cluster, or if nobody can tell."""
        then = handle.data
        if ID in then:
            found = self._ids.get(region, lambda: self._ask(region))
            if not found:
                raise InvalidCredentials(
                    f"Nothing shows any more whether {region} is the cluster that {handle.id} is in.",
                    hint="Let the account `get` the namespace kube-system, as docs/examples/kubernetes/role.yml does.",
                )
            is_same = then[ID] == found
        else:
            known = {name: value for name, value in self._clusters.cluster(region).place.items() if name in then}
            is_same = not known or any(then[name] == value for name, value in known.items())
        if not is_same:
            raise InvalidCredentials(
                f"The context {region} leads to another cluster than the one that {handle.id} is in.",
                hint="Give the other cluster a context of another name, or end what is in the first one before.",
            )
