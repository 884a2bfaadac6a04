"""Names that say when a resource was created, for providers that have neither tags nor times.

A name has 63 characters at most, and its owner's takes 60. Two digits are the time, as a number of twenty seconds,
which begins anew after seven hours: what is older may be taken for new for a while, and nothing worse follows than a
second look-up. The last digit stands for the region, where the provider doesn't say that either: two may have the same.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from chalicelib.backends.kit.visibility import stamp
from chalicelib.domain.instants import HOUR, SECOND, Micros
from chalicelib.domain.owner import DIGITS, LONGEST

STEP, CYCLE = 20 * SECOND, 36**2
_NAME = re.compile(rf"([a-z][0-9a-z]{{{LONGEST - 1}}})([0-9a-z]{{2}})([0-9a-z])")


@dataclass(frozen=True)
class DatedName:
    owner: str  # the name that `domain.owner` reads
    created: str  # at this time or up to a `STEP` before; of another server's clock, it may be in the future
    region: str  # its digit

    def may_be_in(self, region: str) -> bool:
        return not region or self.region == _digit(region)


def dated(owner: str, at: Micros, region: str) -> str:
    number = (at // STEP + 1) % CYCLE
    return owner + DIGITS[number // 36] + DIGITS[number % 36] + _digit(region)


def read(name: str, now: Micros) -> DatedName | None:
    """None: it is no such name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    latest = (now + HOUR) // STEP
    steps = latest - (latest - int(found[2], 36)) % CYCLE
    return DatedName(found[1], stamp(datetime.fromtimestamp(steps * STEP / SECOND, UTC)), found[3])


def _digit(region: str) -> str:
    return DIGITS[hashlib.sha256(region.encode()).digest()[0] % 36]
