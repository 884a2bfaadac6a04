"""How the server misbehaves: what a test switches on.

Answers that fail and connections that are cut are of the kit (`tests/backends/fakes/script.py`); an operation's name is
its verb and its resource: `create pods`, `watch pods`, `create pods/exec`. A cluster whose clock is wrong is one with
another `now`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.backends.fakes.script import Answer, Script
from tests.backends.fakes.server import Refusal
from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.schema import of_kind


@dataclass
class Faults:
    script: Script = field(default_factory=Script)
    streams: int = 0  # watches that began under another number are cut
    stalled: bool = False  # watches say nothing
    repeats: bool = False  # watches say everything twice
    slow: dict[str, threading.Event] = field(default_factory=dict)  # operations (patterns) that wait until it's set

    def delay(self, operation: str) -> None:
        for pattern, event in self.slow.items():
            if fnmatchcase(operation, pattern):
                event.wait()

    def cut_streams(self) -> None:
        self.streams += 1


def throttled(seconds: int = 1) -> Answer:
    message = "the server has received too many requests and has asked us to try again later"
    return errors.refusal(429, "TooManyRequests", message, {"retryAfterSeconds": seconds}).answer


def unavailable() -> Answer:
    return errors.refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request").answer


def broken() -> Answer:
    return errors.refusal(500, "InternalError", "Internal error occurred: etcdserver: request timed out").answer


def quota_race(quota: str) -> Answer:
    """Of two creates at once under a quota, for the one that lost."""
    refused: Refusal = errors.conflict(of_kind("ResourceQuota"), quota)
    return refused.answer
