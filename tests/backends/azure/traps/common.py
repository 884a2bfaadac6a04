"""What the checks share."""

from __future__ import annotations

from tests.backends.fakes.script import Answer

PARTS = frozenset({"nic", "address", "disk"})


def failing(code: str, message: str = "so the test wants it", status: int = 409, **headers: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": message}}, headers)
