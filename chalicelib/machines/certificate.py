"""The certificate machine. A failed order leads back to `waiting`, with a longer pause each time; the certificate that
was issued before stays in use meanwhile.
"""

from __future__ import annotations

from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, Micros, every, spoken
from chalicelib.machines.table import StateMachine

TO_CALL: Micros = 2 * MINUTE  # time for a call to the authority, before others may repeat it
POLL_EVERY: Micros = 3 * SECOND  # first pause between polls of an order that the authority works on
POLL_SELDOM: Micros = MINUTE  # last pause between them
CHECK_UNANSWERED_EVERY: Micros = HOUR  # while the gateway doesn't answer the challenge; its first answer wakes the unit
TO_ANSWER: Micros = 6 * DAY  # time for the gateway to answer; after a week the authority drops the order
TO_VALIDATE: Micros = HOUR  # time for the authority to decide; then the order is given up
ORDER_RETRY: Micros = (
    5 * MINUTE
)  # after the first failure, then twice as long each time: five an hour are allowed, up to
ORDER_SELDOM: Micros = 6 * HOUR
CHECK_ISSUED_EVERY: Micros = DAY  # does the gateway of an issued certificate still exist, and is its host still used?
UNUSED: Micros = 2 * DAY  # a host that its gateway hasn't requested for so long isn't renewed

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
