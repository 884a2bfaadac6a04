"""What a provider's failure means. Backends translate their provider's errors into ours; this table interprets them.

`settled`: the failed call certainly created nothing. Otherwise the machine is looked up before another is tried.
`repeat`: the same offer is worth another try, because nothing is known to be wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chalicelib.domain.reasons import InstanceReason, JobReason


@dataclass(frozen=True)
class Meaning:
    settled: bool  # True: certainly nothing was created. False: unknown
    repeat: bool = False
    retry_after: float = 0.0  # seconds, where the provider names none
    reason: InstanceReason = InstanceReason.error  # of an instance that ends because of it
    job_reason: JobReason | None = None  # of its job, which no other offer would help; None: the next one is tried


# By the error's class name. A purchase whose outcome is unknown is looked up and repeated.
MEANINGS: Mapping[str, Meaning] = {
    "InsufficientCapacity": Meaning(settled=True, reason=InstanceReason.no_offers),
    "QuotaExceeded": Meaning(settled=True, reason=InstanceReason.no_offers),
    "InvalidCredentials": Meaning(settled=True, retry_after=60.0),
    "MissingPermission": Meaning(settled=True, retry_after=60.0),
    "AlreadyThere": Meaning(settled=False, repeat=True, retry_after=30.0),  # perhaps by our own earlier call
    "Throttled": Meaning(settled=True, repeat=True, retry_after=5.0),
    "Gone": Meaning(settled=False, repeat=True, retry_after=5.0),
    "InUse": Meaning(settled=True, repeat=True, retry_after=5.0),
    "NotYet": Meaning(settled=False, repeat=True, retry_after=5.0),
    "Unfit": Meaning(settled=True),
    "ContainerFailed": Meaning(settled=True, job_reason=JobReason.creating_container_error),
    "Transient": Meaning(settled=False, repeat=True, retry_after=5.0),
}
UNKNOWN = Meaning(settled=False, repeat=True, retry_after=30.0)


def meaning(error: str) -> Meaning:
    return MEANINGS.get(error, UNKNOWN)
