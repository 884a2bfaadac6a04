"""TPUs beside machines of Compute Engine, in one backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chalicelib.backends.gcp.tpu_catalog import TpuCatalog
from chalicelib.backends.gcp.tpu_types import is_tpu, of_tpu
from chalicelib.backends.gcp.tpus import GcpTpus
from chalicelib.backends.kit.delegation import CatalogPart, MachinePart
from chalicelib.backends.kit.regions import by_region
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError


class WithTpus:
    def __init__(self, machines: MachinePart, tpus: GcpTpus, *, offered: bool) -> None:
        """Those that exist are described and ended, whether more are `offered` or not."""
        self._machines, self._tpus, self._offered = machines, tpus, offered

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return (self._tpus if is_tpu(request.offer) else self._machines).create(request)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return by_region(
            machines,
            lambda handles: "tpu" if any(map(of_tpu, handles)) else "vm",
            lambda kind, those: (self._tpus if kind == "tpu" else self._machines).describe_several(those),
        )

    def terminate(self, handle: Handle) -> None:
        (self._tpus if of_tpu(handle) else self._machines).terminate(handle)

    def list_owned(self, instance_id: str | None, region: str) -> Iterator[Owned]:
        yield from self._machines.list_owned(instance_id, region)
        if self._offered:
            yield from self._tpus.list_owned(instance_id, region)


class OffersWithTpus:
    def __init__(self, machines: CatalogPart, tpus: TpuCatalog) -> None:
        self._machines, self._tpus = machines, tpus

    def offers(self) -> Sequence[Offer]:
        return [*self._machines.offers(), *self._tpus.offers()]
