"""The first process of a container that is a machine for one task: it starts the agent, starts it again if it crashes,
and ends the container, with the task's exit status, once the server has asked for that.

The task and its supervisor are no children of the agent's, so they outlive its crash. What loses its parent becomes a
child of this process, as in any container, or wherever somebody else is the first.

A signal to end means that the provider takes the container back. The task isn't ended by it: the server hears of it,
and decides, as it does about machines that announce the same in another way.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from typing import Callable, Optional

from ..kernel import process_tree
from ..kernel.log import log

PAUSE, PAUSE_MOST = 1.0, 30.0  # seconds before a crashed agent is started again
STEADY = 60.0  # seconds after which a crash counts as the first
ENDINGS = (signal.SIGTERM, signal.SIGINT)

Child = Callable[["FirstProcess"], int]


class FirstProcess:
    def __init__(self, final: Callable[[int], bool], pause: Callable[[float], None] = time.sleep) -> None:
        """`final`: does this exit status of the agent's say that it needn't be started again?"""
        self._final, self._pause = final, pause
        self._agent = 0
        self.warned = False  # that the provider takes the container back

    def run(self, agent: Child) -> int:
        """Returns the agent's last exit status. `agent` is called in a process of its own."""
        process_tree.become_subreaper()
        for number in ENDINGS:
            signal.signal(number, lambda *_: self._warn())
        pause = PAUSE
        while True:
            began = time.monotonic()
            status = self._reap_until_ended(self._start(agent))
            if self._final(status):
                return status
            pause = PAUSE if time.monotonic() - began > STEADY else pause
            log("the agent ended with status %d; it starts again in %d s" % (status, pause))
            self._pause(pause)
            pause = min(PAUSE_MOST, pause * 2)

    def _warn(self) -> None:
        self.warned = True
        if self._agent:
            process_tree.send([self._agent], signal.SIGTERM)

    def _start(self, agent: Child) -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(_status_of(lambda: agent(self)))
        self._agent = pid
        if self.warned:  # maybe only since the fork, so that the agent doesn't know
            process_tree.send([pid], signal.SIGTERM)
        return pid

    def _reap_until_ended(self, pid: int) -> int:
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                self._agent = 0
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _status_of(agent: Callable[[], int]) -> int:
    try:
        return agent()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code: Optional[object] = end.code
        return code if isinstance(code, int) else 1 if code else 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()
