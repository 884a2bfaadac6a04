"""State changes of a subscription when a delivery succeeds or fails.

Events are delivered one at a time and in order, so one that fails holds up those behind it, and none is skipped. It is
tried again after pauses that double, or later if the receiver asks for that. After the last attempt, about half a day
later, the subscription is dead: it keeps its position, shows why in `dstack server info`, and continues when the server
is restarted or its settings change.
"""

from __future__ import annotations

from chalicelib.domain.instants import DAY, HOUR, SECOND, Micros
from chalicelib.domain.subscriptions import Subscription

FIRST_PAUSE, LONGEST_PAUSE = 2 * SECOND, HOUR
LONGEST_WAIT = DAY  # the longest pause that a receiver can ask for
MOST = 20  # attempts
LONGEST_ERROR = 500  # characters


def due(subscription: Subscription, now: Micros) -> bool:
    return not subscription.dead and (subscription.retry_at is None or subscription.retry_at <= now)


def delivered(subscription: Subscription) -> Subscription:
    """Count one more event of the record after the cursor as delivered."""
    return subscription.with_(within=subscription.within + 1, failures=0, retry_at=None, error="")


def passed(subscription: Subscription, place: int) -> Subscription:
    """Move the cursor: everything up to this place is settled."""
    return subscription.with_(cursor=place, within=0)


def failed(subscription: Subscription, now: Micros, error: str, wait: Micros = 0) -> Subscription:
    """Schedule the next attempt. `wait`: the pause that the receiver asks for; it never shortens ours."""
    failures = subscription.failures + 1
    pause = max(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1)), min(wait, LONGEST_WAIT))
    dead = failures >= MOST
    return subscription.with_(
        failures=failures, retry_at=None if dead else now + pause, error=error[:LONGEST_ERROR], dead=dead
    )


def restarted(subscription: Subscription) -> Subscription:
    """Clear failures, because the server has been restarted or the settings have changed."""
    return subscription.with_(failures=0, retry_at=None, dead=False)
