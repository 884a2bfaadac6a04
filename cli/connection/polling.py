"""How often a server is asked how something is: often at first and after every change, because changes follow each
other closely, and else once a second."""

from __future__ import annotations

SOON_SECONDS = 0.2  # between polls of a run that has just changed
SOON_POLLS = 50  # the number of these polls
POLL_SECONDS = 1.0


class PollPauses:
    """The pauses between polls."""

    def __init__(self) -> None:
        self._seen: object = None
        self._polls = 0

    def after(self, seen: object) -> float:
        """The seconds until the next poll: short for a while after `seen` changed, then long."""
        self._polls = self._polls + 1 if seen == self._seen else 0
        self._seen = seen
        return SOON_SECONDS if self._polls < SOON_POLLS else POLL_SECONDS
