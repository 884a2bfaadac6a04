"""Google's cloud as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created, and Google's
library with the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.gcp.facts import FACTS
from chalicelib.backends.gcp.tpu_types import is_tpu, of_tpu
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import DescribesOne, OfGroups, OfVolumes
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError

if TYPE_CHECKING:
    from chalicelib.backends.gcp.client import GcpClients
    from chalicelib.backends.gcp.config import GCPBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class GcpBackend(DescribesOne, OfGroups, OfVolumes):
    facts = FACTS

    def __init__(
        self,
        config: GCPBackendConfig,
        clients: GcpClients | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for Google."""
        from chalicelib.backends.gcp.catalog import GcpCatalog
        from chalicelib.backends.gcp.client import COMPUTE, TPUS, GcpClients
        from chalicelib.backends.gcp.groups import GcpGroups
        from chalicelib.backends.gcp.machines import GcpMachines
        from chalicelib.backends.gcp.network import GcpNetworks
        from chalicelib.backends.gcp.places import GcpPlaces
        from chalicelib.backends.gcp.prices import GcpPrices
        from chalicelib.backends.gcp.tpu_catalog import TpuCatalog
        from chalicelib.backends.gcp.tpu_client import TpuClient
        from chalicelib.backends.gcp.tpus import GcpTpus
        from chalicelib.backends.gcp.volumes import GcpVolumes

        self._config, self.facts = config, self.facts.with_(bundles=config.tpu)
        self._clients = clients or GcpClients(config.creds, config.project_id, endpoint=endpoint, now=now)
        self._places = GcpPlaces(self._clients, config, now)
        self._networks = GcpNetworks(self._clients, config, now)
        self._machines = GcpMachines(self._clients, config, self._places, self._networks, now)
        priced = GcpPrices(self._clients, now, prices, (COMPUTE, TPUS) if config.tpu else (COMPUTE,))
        self._catalog = GcpCatalog(self._clients, config, self._places, self._networks, priced, now)
        tpus = TpuClient(self._clients, now)
        self._tpus = GcpTpus(tpus, config, self._networks, now)
        self._tpu_catalog = TpuCatalog(tpus, config, self._places, self._networks, priced)
        self._groups = GcpGroups(self._clients)
        self._volumes = GcpVolumes(self._clients, config, self._places, priced, now)

    def check(self) -> None:
        from chalicelib.backends.gcp.checking import check

        check(self._clients, self._config, self._places, self._networks)
        if self._config.tpu:
            self._tpus.check()

    def offers(self) -> Sequence[Offer]:
        return [*self._catalog.offers(), *(self._tpu_catalog.offers() if self._config.tpu else ())]

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return (self._tpus if is_tpu(request.offer) else self._machines).create(request)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        from chalicelib.backends.kit.regions import by_region

        return by_region(
            machines,
            lambda handles: "tpu" if any(map(of_tpu, handles)) else "vm",
            lambda kind, those: (self._tpus if kind == "tpu" else self._machines).describe_several(those),
        )

    def terminate(self, handle: Handle) -> None:
        (self._tpus if of_tpu(handle) else self._machines).terminate(handle)

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        yield from self._machines.list_owned(instance_id, region)
        if self._config.tpu:
            yield from self._tpus.list_owned(instance_id, region)

    def close(self) -> None:
        self._clients.close()
