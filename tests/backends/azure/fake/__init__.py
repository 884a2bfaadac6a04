"""A subscription of Azure, as its Resource Manager shows it.

`api`       requests, tokens, errors, listings and the operations that go on after the answer.
`account`   what is there before anything is bought: the subscription, its rights, its resource groups.
`shop`      sizes, prices and quotas.
`machines`  machines, with all that is made along with them.
`network`   networks, security groups, network cards, addresses.
`disks`     disks, and what they are attached to.
`groups`    availability sets and proximity placement groups.
`reservations`  capacity that the subscription has reserved.

`compute.json`, `network.json` and `resources.json` are made by `extract` from the documents that they name. What those
don't say, the modules have from Azure's documentation and from reports of its users.
"""

from __future__ import annotations

from math import ceil, log2

from tests.backends.azure.fake.account import Account
from tests.backends.azure.fake.api import Arm, api
from tests.backends.azure.fake.groups import Groups
from tests.backends.azure.fake.machines import Machines
from tests.backends.azure.fake.shop import RATES, SIZES
from tests.backends.fakes.server import Fake

STEP, ADDRESS = 9.6 / 730, 0.005  # of a disk of 128 GB, and of an address


class Azure(Account, Machines, Groups, Arm, Fake):
    api = api()

    def billed(self) -> float:
        """Dollars an hour, for all that exists: machines that have room, disks by their steps, addresses."""
        now, dollars = self.now(), 0.0
        for each in self.books.existing():
            rate = RATES.get(each.facts.get("location", ""), 0.0)
            if each.kind == "vm" and each.state(now) != "Failed" and each.facts.get("power") != "deallocated":
                sold, spot = SIZES[each.facts["size"]], each.facts["body"]["properties"].get("priority") == "Spot"
                dollars += (sold.spot if spot else sold.price) * rate
            elif each.kind == "disk":
                dollars += STEP * 2 ** max(0, ceil(log2(each.facts["size"] / 128)))
            elif each.kind == "address":
                dollars += ADDRESS
        return dollars


__all__ = ["Azure"]
