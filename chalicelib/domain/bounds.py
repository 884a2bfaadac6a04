"""The bounds of every number that comes from outside: from files, requests, agents and backends.

Python's integers have no limit, but everything around them does: JSON here has 64 bits, dates end with the year 9999,
the kernel's user ids have 32 bits, and infinity isn't JSON at all. A number out of bounds is refused where it enters,
with the name of its field; otherwise it would break a later reader, when its sender is long gone. A test finds every
model of outside data whose numbers have no bounds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

LAST_INSTANT = 10**17 - 1  # microseconds: as many digits as keys hold, until the year 5138
LAST_UNIX_ID = 2**32 - 2  # the one after it means "none" to the kernel
LONGEST = 100 * 365 * 86_400  # seconds in a century: a longer duration is a mistake
MOST_BLOCKS = 1_024  # jobs on one machine; an agent's message has room for all of them
MOST_DOLLARS = 1e9
MOST_AMOUNT = 10**18  # of anything that is counted or measured

Amount = Annotated[
    int, Field(ge=0, le=MOST_AMOUNT)
]  # bytes, micro-seconds of CPU, positions in a log, numbers in a row
Mebibytes = Annotated[int, Field(ge=0, le=2**40)]
Gibibytes = Annotated[float, Field(ge=0, le=2**30, allow_inf_nan=False)]
Cores = Annotated[int, Field(ge=0, le=2**20)]
Blocks = Annotated[int, Field(ge=1, le=2**20)]
ExitStatus = Annotated[int, Field(ge=-(2**31), lt=2**32)]  # some systems count from -2³¹, some to 2³²
Instant = Annotated[int, Field(ge=0, le=LAST_INSTANT)]
Dollars = Annotated[float, Field(ge=0, le=MOST_DOLLARS, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
