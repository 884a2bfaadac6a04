"""A thread that sends messages to the server. There are two, because one may be waiting in a poll."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Tuple

from ..kernel.link import Link, LinkError
from ..kernel.route import Via
from .session import Message


class MessageSender(threading.Thread):
    """Sends messages of one kind (polls or pushes), one at a time."""

    def __init__(
        self,
        name: str,
        deliver: Callable[[Message, Any], None],
        via: Via,
        outdated: Callable[[Any], bool] = lambda answer: False,
    ) -> None:
        """`outdated`: whether an answer is of a server that another has taken over from."""
        super().__init__(name=name, daemon=True)
        self._outdated = outdated
        self._deliver, self._link = deliver, Link(via)
        self._queue: "queue.Queue[Tuple[str, Message]]" = queue.Queue()

    def send(self, base: str, message: Message) -> None:
        self._queue.put((base, message))

    def run(self) -> None:
        while True:
            base, message = self._queue.get()
            try:
                outcome: Any = self._link.sync(base, message.body, message.credential, message.wait)
                if self._outdated(outcome):
                    self._link.close()  # the server's name may lead to the other one by now
                    outcome = LinkError("%s is a server that another has taken over from" % base)
            except LinkError as problem:
                outcome = problem
            except Exception as problem:  # a thread that died silently would leave its message in flight for ever
                outcome = LinkError("%r" % problem)
            self._deliver(message, outcome)
