"""The certificate machine. A failed order leads back to `waiting`, with a longer pause each time, and
what was issued before goes on serving meanwhile.
"""

from __future__ import annotations

from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, Micros, every, spoken
from chalicelib.machines.table import StateMachine

TO_CALL: Micros = 2 * MINUTE  # for a call to the authority, before others may repeat it
POLL_EVERY: Micros = 3 * SECOND  # at an order that the authority works on: at first,
POLL_SELDOM: Micros = MINUTE  # and at last
CHECK_UNANSWERED_EVERY: Micros = HOUR  # at an order whose gateway hasn't taken the answer; its taking it wakes it
TO_ANSWER: Micros = 6 * DAY  # for that: then the authority forgets the order
TO_VALIDATE: Micros = HOUR  # an order that the authority doesn't decide by then is given up
ORDER_RETRY: Micros = (
    5 * MINUTE
)  # after the first failure, then twice as long each time: five an hour are allowed, up to
ORDER_SELDOM: Micros = 6 * HOUR
CHECK_ISSUED_EVERY: Micros = DAY  # at one that is issued: is its gateway there, and its host used?
UNUSED: Micros = 2 * DAY  # a host that its gateway has not been told of for so long isn't renewed

CERTIFICATE = StateMachine(
    noun="certificate",
    initial=("waiting",),
    terminal=frozenset({"dropped"}),
    table={
        "waiting": {"placed": "ordered", "drop": "dropped"},
        "ordered": {"answered": "validating", "ready": "finalizing", "refused": "waiting", "drop": "dropped"},
        "validating": {"ready": "finalizing", "refused": "waiting", "drop": "dropped"},
        "finalizing": {"issued": "issued", "refused": "waiting", "drop": "dropped"},
        "issued": {"renew": "waiting", "drop": "dropped"},
    },
    timeouts={
        "waiting": f"none before the first order; after a failure {spoken(ORDER_RETRY)}, doubled with each one up to "
        f"{spoken(ORDER_SELDOM)}",
        "ordered": f"{spoken(TO_ANSWER)} for the gateway to answer at the host, then it is ordered again",
        "validating": f"the authority is asked {every(POLL_EVERY)}, then less often, for {spoken(TO_VALIDATE)}",
        "finalizing": "the same time",
        "issued": "two thirds of the certificate's life; dropped when it expires and its host hasn't been used for "
        f"{spoken(UNUSED)}",
    },
)
