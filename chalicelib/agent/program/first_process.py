"""The first process of a container that is a machine for one task: it starts the agent, restarts it after a crash, and
ends the container with the task's exit status when the server requests that.

The task's supervisor isn't a child of the agent, so it and the task survive a crash of the agent. Orphaned processes
become children of this process, also in containers where the provider has another first process (it is a subreaper).

SIGTERM or SIGINT means that the provider takes the container back. This doesn't end the task: the agent reports it as
an interruption notice, and the server decides, as it does for machines that get such notices in other ways.
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
STEADY = 60.0  # seconds: after such a long run the pause is short again
ENDINGS = (signal.SIGTERM, signal.SIGINT)
AWAITED = (*ENDINGS, signal.SIGCHLD)

Child = Callable[["FirstProcess"], int]


class FirstProcess:
    def __init__(self, final: Callable[[int], bool], pause: Callable[[float], None] = time.sleep) -> None:
        """`final`: whether an exit status of the agent means that it mustn't be restarted."""
        self._final, self._pause = final, pause
        self._agent = 0
        self.warned = False  # whether the provider has announced that it takes the container back

    def run(self, agent: Child) -> int:
        """Runs `agent` in a child process, again after each crash. Returns its last exit status."""
        process_tree.become_subreaper()
        for number in ENDINGS:  # for a child that isn't the agent yet
            signal.signal(number, lambda *_: self._warn())
        # A handler runs for a signal that arrives just before `waitpid` only when a child ends. So they are awaited.
        signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
        pause = PAUSE
        while True:
            began = time.monotonic()
            status = self._reap_until_ended(self._start(agent))
            if self._final(status):
                return status
            pause = PAUSE if time.monotonic() - began > STEADY else pause
            log("the agent ended with status %d; it will be restarted in %d s" % (status, pause))
            self._pause(pause)
            pause = min(PAUSE_MOST, pause * 2)

    def _warn(self) -> None:
        self.warned = True
        if self._agent:
            process_tree.send([self._agent], signal.SIGTERM)

    def _start(self, agent: Child) -> int:
        self._agent = os.fork()
        if self._agent == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
            os._exit(_status_of(lambda: agent(self)))
        return self._agent

    def _reap_until_ended(self, pid: int) -> int:
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == pid:
                self._agent = 0
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if not ended and signal.sigwait(AWAITED) in ENDINGS:
                self._warn()


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
