"""Whose orders count, where two servers are a pair: those of the last one that took the lease.

A server that has lost its lease stops by itself. But an answer of it may have waited in its process, or in the network,
while the other one took over. So the agent remembers the highest epoch that it has heard of, across restarts, and
ignores answers with a lower one. Those of another lease, or with none, are of servers that are no pair with that one.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ..kernel.log import log
from ..kernel.tasks import read_text, write_atomic

if TYPE_CHECKING:
    from ...contract.agent import SyncReply


class Epochs:
    def __init__(self, data: str) -> None:
        self._path = os.path.join(data, "epoch")
        self._lock = threading.Lock()  # of the threads that receive answers
        self._lease, _, number = (read_text(self._path) or "").strip().partition(" ")
        self._highest = int(number) if number.isdigit() else 0
        self._kept = True  # also across a restart of the agent

    def outdated(self, answer: SyncReply) -> bool:
        """Is it of a server that another one has taken over from? A higher epoch is remembered before it is obeyed."""
        lease, epoch = str(answer.get("lease") or ""), answer.get("epoch")
        if not lease or not isinstance(epoch, int):
            return False
        with self._lock:
            if lease == self._lease and epoch < self._highest:
                return True
            if (lease, epoch) != (self._lease, self._highest) or not self._kept:
                self._lease, self._highest = lease, epoch
                self._keep()
        return False

    def _keep(self) -> None:
        """On a full disk, this process remembers alone, and tries again at the next answer: the new server's orders are
        what makes room."""
        try:
            write_atomic(self._path, "%s %d\n" % (self._lease, self._highest), durable=True)
        except OSError as problem:
            if self._kept:
                log("the epoch %d of the servers isn't kept: %s" % (self._highest, problem))
            self._kept = False
        else:
            self._kept = True
