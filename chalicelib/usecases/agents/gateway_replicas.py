"""What an agent hears and reports about the gateway's replica on its machine."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.gateways import GatewaySeat
from chalicelib.domain.reports import GatewayReport


def wanted(seat: GatewaySeat | None) -> dict[str, Any] | None:
    """As the answer to a sync has it. An answer without one ends the gateway there."""
    if seat is None or seat.leaving:
        return None
    return {"id": seat.gateway_id, "num": seat.num, "http": seat.http_port, "https": seat.https_port}


def must_act(seat: GatewaySeat | None, report: GatewayReport | None) -> bool:
    """Is something else wanted of this machine than what its agent is about?"""
    return wanted(seat) is not None if report is None else not report.is_of(seat)


def settling(seat: GatewaySeat | None, report: GatewayReport | None) -> bool:
    """Will its agent have something to say soon?"""
    return must_act(seat, report) or (report is not None and report.state in ("starting", "installing"))
