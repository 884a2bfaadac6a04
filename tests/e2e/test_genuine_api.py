"""The genuine Python API against our server."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.peer import Peer


def test_plan_apply_list_get_refresh_logs_stop(peer: Peer) -> None:
    seen = peer.python(Path(__file__).parent / "api_journey.py")
    assert seen["plan"]["name"] == "byapi" and seen["plan"]["offers"] >= 1
    assert seen["status"] == "running" and seen["ended"] == "terminated"
    assert "byapi" in seen["listed"] and seen["got"] == "byapi" and seen["missing"]
    assert seen["logs"].replace("\r", "") == "by the api\n"
    assert seen["backend"] == "remote" and seen["hostname"]
