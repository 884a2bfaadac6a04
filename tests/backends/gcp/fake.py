"""Google's cloud: calls that are accepted and fail later, and lists that don't say everything.

Its data are `compute.json`, `billing.json` and `permissions.json`, made by `extract` from Google's discovery documents.
What these don't say is from the public reports that the tests of traps name: that a launch is accepted before anybody
knows whether there is room, that a machine may vanish, codes of operations, and quotas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from chalicelib.domain.instants import Micros
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Answer, Call, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why
from tests.backends.gcp.groups import Groups
from tests.backends.gcp.operations import PROJECT, refusal

TOKEN = "ya29.never-shown-0123456789"
HERE = Path(__file__).parent
REASONS: Mapping[str, tuple[int, str]] = {
    "no-route": (404, "notFound"),
    "invalid": (400, "invalid"),
    "throttled": (403, "rateLimitExceeded"),
}


def _api() -> Api:
    parts = [json.loads((HERE / f"{name}.json").read_text()) for name in ("compute", "billing", "permissions")]
    merged: dict[str, Any] = {"source": "; ".join(part["source"] for part in parts)}
    for key in ("operations", "schemas"):
        merged[key] = {name: each for part in parts for name, each in part[key].items()}
        assert len(merged[key]) == sum(len(part[key]) for part in parts), "two documents have one name"
    return Api(merged)


class Google(Groups, Fake):
    api = _api()
    _held: ClassVar[set[str]] = set()

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        Fake.__init__(self, now, script)
        self.arrange()

    def _check(self, call: Call, made: Answer) -> None:
        """What is sold is the same in every test, so such a list is held to its schema once."""
        call.query.get("alt")  # every answer is JSON
        once = call.operation.name in ("services.skus.list", "machineTypes.aggregatedList")
        if once and self.script.page == 0 and not self.unreachable:
            if call.operation.name in self._held:
                return
            self._held.add(call.operation.name)
        super()._check(call, made)

    def authenticate(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise refusal(401, "authError", "Invalid Credentials")

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        status, reason = REASONS[why]
        return refusal(status, reason, message)


__all__ = ["PROJECT", "TOKEN", "Google"]
