"""Placement groups: GPU clusters, whose machines share an InfiniBand fabric.

The fabric is chosen with the group, and a machine joins when it is created; so all nodes must fit that one fabric.
Only presets with all GPUs of a host have InfiniBand. Others reach each other in the network, and need no group: its
handle stands for nothing at Nebius.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from chalicelib.backends.kit.groups import GROUP, is_nothing, no_group
from chalicelib.backends.kit.owners import owned_group
from chalicelib.backends.kit.regions import listed_everywhere
from chalicelib.backends.nebius.catalog import NebiusCatalog
from chalicelib.backends.nebius.client import NebiusClient, idempotency_key
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.nebius.labels import marks_of
from chalicelib.backends.nebius.named import Made, Named
from chalicelib.backends.nebius.operations import CLUSTERS, Operations
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.nebius.reservations import fabric_of, reservations
from chalicelib.backends.spi import GroupRequest, OwnedGroup
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import Gone, NotYet, Unfit


class NebiusGroups:
    def __init__(
        self, client: NebiusClient, config: NebiusBackendConfig, places: Places, catalog: NebiusCatalog
    ) -> None:
        self._client, self._fabrics, self._places, self._catalog = client, config.fabrics, places, catalog
        self._named = Named(client, places, config.tags)

    def create(self, request: GroupRequest) -> Handle:
        region = request.offer.region
        if "fabrics" not in request.offer.backend_data:
            return no_group(request, "no InfiniBand")

        def made(key: str) -> Made:
            return self._named.made(
                CLUSTERS,
                "GPU cluster",
                request,
                region,
                lambda: {"infiniband_fabric": self._fabric(request.offer)},
                key=key,
            )

        found = made(idempotency_key(request.token, "group"))
        is_over = found.over and self._client.find(CLUSTERS, found.id, region) is None
        if is_over:  # the key repeats the answer of one that is gone
            found = made(str(uuid.uuid4()))  # its name is there once at most
        if found.failed is not None:
            raise found.failed
        return _handle(found.id, region)

    def _fabric(self, offer: Offer) -> str:
        """The one with the most room now, or that of the reserved machines."""
        if offer.reservation and (reserved := fabric_of(offer.reservation, reservations(self._client, self._places))):
            if self._fabrics and reserved not in self._fabrics:
                raise Unfit(
                    f"The capacity block group {offer.reservation} is in the InfiniBand fabric {reserved}, which isn't "
                    f"among {', '.join(self._fabrics)}.",
                    hint="Add it to `fabrics`.",
                )
            return reserved
        platform, _, preset = offer.instance.name.partition(" ")
        advice = self._catalog.advice().get((offer.region, platform, preset))
        found = next(iter(advice.fabrics), "") if advice else ""
        known = found or next(iter(offer.backend_data["fabrics"]), "")
        if not known:
            allowed = f" among {', '.join(self._fabrics)}" if self._fabrics else ""
            raise Unfit(
                f"Nebius names no InfiniBand fabric for {offer.instance.name} in {offer.region}{allowed}.",
                hint="Check `fabrics`, and that the service account may read the advice on capacity.",
            )
        return str(known)

    def delete(self, handle: Handle) -> None:
        if is_nothing(handle):
            raise Gone(f"{handle.id} stands for no GPU cluster.")
        region = handle.data.get("region", "")
        try:
            with contextlib.suppress(NotYet):  # it is being created or deleted
                self._client.started(CLUSTERS, "Delete", {"id": handle.id}, region=region, what=handle.id)
        except Unfit as error:
            if Operations.is_possible(CLUSTERS, handle):
                raise
            raise Gone(f"Nebius has no GPU cluster {handle.id}.") from error

    def list_owned(self) -> Iterator[OwnedGroup]:
        return listed_everywhere(self._places.regions(), self._owned)

    def _owned(self, region: str) -> Iterator[OwnedGroup]:
        for body in self._places.listed(CLUSTERS, region):
            yield from owned_group(_handle(str(body["metadata"]["id"]), region), *marks_of(body))


def _handle(identity: str, region: str) -> Handle:
    return Handle(kind=GROUP, id=identity, data={"region": region})
