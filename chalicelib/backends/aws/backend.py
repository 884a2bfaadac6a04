"""Amazon Web Services as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.backends.aws.facts import FACTS
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfAccount, OfGroups, OfMachines, OfVolumes

if TYPE_CHECKING:
    from chalicelib.backends.aws.client import Clients
    from chalicelib.backends.aws.config import AWSBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class AwsBackend(OfAccount, OfMachines, OfGroups, OfVolumes):
    facts = FACTS
    _client: Clients

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

        self._config, self._client = config, clients or Clients(config.creds, endpoint=endpoint or None)
        self._networks = Networks(self._client, config, now)
        self._images = AwsImages(self._client, config, now)
        self._machines = Machines(self._client, config, self._networks, self._images, now)
        self._groups = AwsGroups(self._client, config)
        priced, self._price_file = Prices(self._client, now, prices), prices is not None
        self._catalog = AwsCatalog(self._client, config, priced, now)
        self._volumes = AwsVolumes(self._client, config, self._networks, priced, now)

    def check(self) -> None:
        from chalicelib.backends.aws.checking import check

        check(self._client, self._config, self._networks, self._images, price_file=self._price_file)
