"""Amazon Web Services as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.aws.facts import FACTS
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfGroups, OfMachines, OfVolumes
from chalicelib.domain.offers import Offer

if TYPE_CHECKING:
    from chalicelib.backends.aws.client import Clients
    from chalicelib.backends.aws.config import AWSBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class AwsBackend(OfMachines, OfGroups, OfVolumes):
    facts = FACTS

    def __init__(
        self,
        config: AWSBackendConfig,
        clients: Clients | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of an emulator."""
        from chalicelib.backends.aws.catalog import AwsCatalog
        from chalicelib.backends.aws.client import Clients
        from chalicelib.backends.aws.groups import AwsGroups
        from chalicelib.backends.aws.images import AwsImages
        from chalicelib.backends.aws.machines import Machines
        from chalicelib.backends.aws.network import Networks
        from chalicelib.backends.aws.prices import Prices
        from chalicelib.backends.aws.volumes import AwsVolumes

        self._config, self._clients = config, clients or Clients(config.creds, endpoint=endpoint or None)
        self._networks = Networks(self._clients, config, now)
        self._images = AwsImages(self._clients, config, now)
        self._machines = Machines(self._clients, config, self._networks, self._images, now)
        self._groups = AwsGroups(self._clients, config)
        priced, self._price_file = Prices(self._clients, now, prices), prices is not None
        self._catalog = AwsCatalog(self._clients, config, priced, now)
        self._volumes = AwsVolumes(self._clients, config, self._networks, priced, now)

    def check(self) -> None:
        from chalicelib.backends.aws.checking import check

        check(self._clients, self._config, self._networks, self._images, price_file=self._price_file)

    def offers(self) -> Sequence[Offer]:
        return self._catalog.offers()

    def close(self) -> None:
        self._clients.close()
