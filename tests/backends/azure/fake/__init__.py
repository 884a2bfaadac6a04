"""A subscription of Azure, as its Resource Manager shows it.

`api`       requests, tokens, errors, listings and the operations that go on after the answer.
`account`   what is there before anything is bought: the subscription, its rights, its resource groups.
`shop`      sizes, prices and quotas.
`machines`  machines, with all that is made along with them.
`network`   networks, security groups, network cards, addresses.
`disks`     disks, and what they are attached to.
`groups`    availability sets and proximity placement groups.

`compute.json`, `network.json` and `resources.json` are made by `extract` from the documents that they name. What those
don't say, the modules have from Azure's documentation and from reports of its users.
"""

from __future__ import annotations

from tests.backends.azure.fake.account import Account
from tests.backends.azure.fake.api import Arm, api
from tests.backends.azure.fake.groups import Groups
from tests.backends.azure.fake.machines import Machines
from tests.backends.fakes.server import Fake


class Azure(Account, Machines, Groups, Arm, Fake):
    api = api()


__all__ = ["Azure"]
