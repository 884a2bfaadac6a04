"""What Azure's users have met, each with a check of what the backend makes of it.

Every check is played on the backend as it is (`test_traps.py`), and on one that has the mistake which walks into it
(`test_mistakes.py`).

`endings`    what a machine leaves behind.
`purchases`  capacity, quotas, limits.
`reserved`   capacity reservations.
`sites`      sizes, prices, networks, groups, clusters, volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.backends.azure.account import Account
from tests.backends.azure.traps import endings, purchases, reserved, sites

Check = Callable[[Account], None]
CHECKS: Mapping[str, Check] = {
    name: each
    for module in (endings, purchases, reserved, sites)
    for name, each in vars(module).items()
    if getattr(each, "__module__", "") == module.__name__ and name != "volume"
}
